//! Parses durations, sizes and numbers of the command line.

use std::time::Duration;

/// Parses a duration: `5s`, `500ms`, `1m 30s`.
///
/// # Errors
/// The accepted format.
pub fn duration(text: &str) -> Result<Duration, String> {
    let help = "write a number and its unit, such as 500ms, 5s or 2m";
    let signed: jiff::SignedDuration = text.trim().parse().map_err(|_| help.to_owned())?;
    Duration::try_from(signed).map_err(|_| "a duration cannot be negative".to_owned())
}

/// Parses a duration that is not zero.
///
/// # Errors
/// The accepted format, or that the value is zero.
pub fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("must be longer than zero".to_owned()),
        long => Ok(long),
    }
}

/// Parses a number that is not zero, and small enough for a semaphore.
///
/// # Errors
/// The accepted format, or that the value is zero.
pub fn count(text: &str) -> Result<usize, String> {
    match text.trim().parse::<u32>() {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(number) => Ok(usize::try_from(number).unwrap_or(usize::MAX)),
        Err(_) => Err("write a whole number, such as 256".to_owned()),
    }
}

/// Parses a size: `24MiB`, `24Mi`, `24MB`, `1048576`.
///
/// # Errors
/// The accepted format, or that the value is not addressable.
pub fn bytes(text: &str) -> Result<usize, String> {
    let help = || "write a number and its unit, such as 24MiB, 512KiB or 25MB".to_owned();
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: usize = number.parse().map_err(|_| help())?;
    let factor = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "ki" | "kib" => 1 << 10,
        "mi" | "mib" => 1 << 20,
        "gi" | "gib" => 1 << 30,
        _ => return Err(help()),
    };
    number
        .checked_mul(factor)
        .ok_or_else(|| "is more than this machine can address".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_every_spelling() {
        let cases = [
            ("1", 1),
            ("2kB", 2_000),
            ("3Ki", 3 << 10),
            ("24MiB", 24 << 20),
            ("1 gib", 1 << 30),
            ("8M", 8_000_000),
        ];
        for (text, size) in cases {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "MiB", "1.5MiB", "-1", "1 parsec", "99999999999GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_need_a_unit_and_timeouts_are_not_zero() {
        assert_eq!(duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("5").unwrap_err().contains("unit"));
        assert!(duration("-5s").is_err());
        assert!(positive("0s").is_err());
        assert!(count("0").is_err());
    }
}
