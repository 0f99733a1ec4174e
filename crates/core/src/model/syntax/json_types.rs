//! Field types of the borrowed views: strings that borrow, lists and maps that accept `null`, and fields of which only
//! the presence is read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A string of the input: borrowed if it has no escapes, otherwise owned; `null` is the empty string.
///
/// (`Option<Cow<str>>` never borrows in serde; this does.)
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Str<'a>(pub Cow<'a, str>);

impl Str<'_> {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Str<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Str<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> From<&'a str> for Str<'a> {
    fn from(text: &'a str) -> Self {
        Str(Cow::Borrowed(text))
    }
}

impl From<String> for Str<'_> {
    fn from(text: String) -> Self {
        Str(Cow::Owned(text))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Str<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_unit<E>(self) -> Result<Str<'de>, E> {
                Ok(Str::default())
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(v)))
            }
            fn visit_str<E>(self, v: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(v.to_owned())))
            }
            fn visit_string<E>(self, v: String) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(v)))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// The maximum number of items of a list. A valid object has far fewer, and an empty item of a view takes a hundred
/// times the memory of its three bytes of input.
const LONGEST: usize = 20_000;

/// A list; `null` and absent are the empty list, as in Kubernetes.
#[derive(Clone, PartialEq, Debug)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        List(Vec::new())
    }
}

impl<T> Deref for List<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'l, T> IntoIterator for &'l List<T> {
    type Item = &'l T;
    type IntoIter = std::slice::Iter<'l, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_unit<E>(self) -> Result<List<T>, E> {
                Ok(List::default())
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == LONGEST {
                        return Err(serde::de::Error::custom(format_args!(
                            "more than {LONGEST} items"
                        )));
                    }
                    items.push(item);
                }
                Ok(List(items))
            }
        }
        deserializer.deserialize_any(Items(PhantomData))
    }
}

/// A [`List`] that is shared when its owner is copied, and copied only on change: for large parts of a pod.
#[derive(Clone, PartialEq, Debug)]
pub struct SharedList<T>(Option<Arc<Vec<T>>>);

impl<T: Clone> SharedList<T> {
    /// The items for modification: copied first if they are shared.
    pub fn make_mut(&mut self) -> &mut [T] {
        self.0
            .as_mut()
            .map_or(&mut [], |items| Arc::make_mut(items).as_mut_slice())
    }
}

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        SharedList(None)
    }
}

impl<T> Deref for SharedList<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<'l, T> IntoIterator for &'l SharedList<T> {
    type Item = &'l T;
    type IntoIter = std::slice::Iter<'l, T>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SharedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let List(items) = List::deserialize(deserializer)?;
        Ok(SharedList((!items.is_empty()).then(|| Arc::new(items))))
    }
}

/// A map with string keys, in the order written; `null` and absent are the empty map.
///
/// Kept as a list of pairs: these maps are short, and reading them in order is faster than hashing.
#[derive(Clone, PartialEq, Debug)]
pub struct Map<'a, V = Str<'a>>(pub Vec<(Str<'a>, V)>);

impl<V> Default for Map<'_, V> {
    fn default() -> Self {
        Map(Vec::new())
    }
}

impl Map<'_> {
    /// A copy that borrows nothing; of a key that occurs twice, it has the last value.
    pub fn to_owned_map(&self) -> BTreeMap<String, String> {
        let pairs = self.iter();
        pairs
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect()
    }
}

impl<'a, V> Map<'a, V> {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&V> {
        self.0.iter().find(|(k, _)| &**k == key).map(|(_, v)| v)
    }

    /// Every key with its value, as written.
    pub fn iter(&self) -> std::slice::Iter<'_, (Str<'a>, V)> {
        self.0.iter()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the value of a key.
    pub fn set(&mut self, key: Str<'a>, value: V) {
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, v)) => *v = value,
            None => self.0.push((key, value)),
        }
    }

    /// Removes the value of a key.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|(k, _)| &**k != key);
    }
}

impl<'l, 'a, V> IntoIterator for &'l Map<'a, V> {
    type Item = &'l (Str<'a>, V);
    type IntoIter = std::slice::Iter<'l, (Str<'a>, V)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Map<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<V>(PhantomData<V>);
        impl<'de, V: Deserialize<'de>> Visitor<'de> for Pairs<V> {
            type Value = Map<'de, V>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Map::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Map(pairs))
            }
        }
        deserializer.deserialize_any(Pairs(PhantomData))
    }
}

/// Treats `null` as missing, as Kubernetes does: for a struct of which nothing asks whether it is there.
///
/// # Errors
/// If another value does not parse.
pub fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Whether a field is present: any value except `null`. The value is skipped without parsing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IsPresent(pub bool);

impl<'de> Deserialize<'de> for IsPresent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<IgnoredAny>::deserialize(deserializer).map(|value| IsPresent(value.is_some()))
    }
}

/// A boolean that is false unless it is `true`; `null` is false.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<bool>::deserialize(deserializer).map(|value| Flag(value.unwrap_or_default()))
    }
}

/// A Kubernetes quantity as written: `512Mi`, `1`, `0.5`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Quantity<'a>(pub Str<'a>);

impl Quantity<'_> {
    /// The value in thousandths, rounded up; `None` if it is not a quantity or too large.
    ///
    /// Source: apimachinery `resource.ParseQuantity`.
    pub fn millis(&self) -> Option<u128> {
        let text = self.0.trim();
        let split = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')));
        let (number, suffix) = text.split_at(split.unwrap_or(text.len()));
        let (numerator, denominator, exponent): (u128, u128, i32) = match suffix {
            "" => (1, 1, 0),
            "m" => (1, 1000, 0),
            "u" => (1, 1_000_000, 0),
            "n" => (1, 1_000_000_000, 0),
            "k" => (1000, 1, 0),
            "M" => (1_000_000, 1, 0),
            "G" => (1_000_000_000, 1, 0),
            "T" => (1_000_000_000_000, 1, 0),
            "P" => (1_000_000_000_000_000, 1, 0),
            "E" => (1_000_000_000_000_000_000, 1, 0),
            "Ki" => (1 << 10, 1, 0),
            "Mi" => (1 << 20, 1, 0),
            "Gi" => (1 << 30, 1, 0),
            "Ti" => (1 << 40, 1, 0),
            "Pi" => (1 << 50, 1, 0),
            "Ei" => (1 << 60, 1, 0),
            exponent => (1, 1, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.len() > 18 {
            return None;
        }
        let whole = whole.trim_start_matches('+');
        let digits: u128 = if fraction.is_empty() {
            whole.parse().ok()?
        } else {
            format!("{whole}{fraction}").parse().ok()?
        };
        let mut top = digits.checked_mul(numerator)?.checked_mul(1000)?;
        let mut bottom = denominator.checked_mul(10u128.checked_pow(u32::try_from(fraction.len()).ok()?)?)?;
        match u32::try_from(exponent) {
            Ok(up) => top = top.checked_mul(10u128.checked_pow(up)?)?,
            Err(_) => bottom = bottom.checked_mul(10u128.checked_pow(exponent.unsigned_abs())?)?,
        }
        Some(top.div_ceil(bottom))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Quantity<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Amount;
        impl<'de> Visitor<'de> for Amount {
            type Value = Quantity<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity")
            }
            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Quantity::default())
            }
            fn visit_borrowed_str<E>(self, v: &'de str) -> Result<Self::Value, E> {
                Ok(Quantity(v.into()))
            }
            fn visit_str<E>(self, v: &str) -> Result<Self::Value, E> {
                Ok(Quantity(v.to_owned().into()))
            }
            fn visit_u64<E>(self, v: u64) -> Result<Self::Value, E> {
                Ok(Quantity(v.to_string().into()))
            }
            fn visit_i64<E>(self, v: i64) -> Result<Self::Value, E> {
                Ok(Quantity(v.to_string().into()))
            }
            fn visit_f64<E>(self, v: f64) -> Result<Self::Value, E> {
                Ok(Quantity(v.to_string().into()))
            }
        }
        deserializer.deserialize_any(Amount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_borrow_unless_they_are_escaped() {
        let plain: Option<Str<'_>> = serde_json::from_str(r#""windows""#).unwrap();
        assert!(matches!(plain, Some(Str(Cow::Borrowed("windows")))));
        let escaped: Str<'_> = serde_json::from_str(r#""C:\\temp""#).unwrap();
        assert_eq!(&*escaped, r"C:\temp");
    }

    #[test]
    fn null_is_an_empty_list_an_empty_map_absent_and_false() {
        assert!(serde_json::from_str::<List<Str<'_>>>("null").unwrap().is_empty());
        assert!(serde_json::from_str::<Map<'_>>("null").unwrap().is_empty());
        assert!(!serde_json::from_str::<IsPresent>("null").unwrap().0);
        assert!(!serde_json::from_str::<Flag>("null").unwrap().0);
        for there in ["{}", "[]", "0", "false", r#""""#] {
            assert!(serde_json::from_str::<IsPresent>(there).unwrap().0, "{there}");
        }
    }

    #[test]
    fn quantities_are_compared_by_value() {
        let millis = |text: &str| Quantity(text.to_owned().into()).millis();
        assert_eq!(millis("1Gi"), millis("1024Mi"));
        assert_eq!(millis("1.5"), Some(1500));
        assert_eq!(millis("100m"), Some(100));
        assert_eq!(millis("1e3"), millis("1k"));
        assert_eq!(millis("0.5Gi"), millis("512Mi"));
        for nonsense in [
            "",
            "Mi",
            "1Xi",
            "-1",
            "1e99999",
            "99999999999999999999999999999999999999Ei",
            ".",
        ] {
            assert_eq!(millis(nonsense), None, "{nonsense}");
        }
    }
}
