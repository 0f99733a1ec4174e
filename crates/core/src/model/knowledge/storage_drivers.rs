//! Storage drivers: which of them Windows nodes can have, for which volumes.

use std::collections::BTreeMap;

use jiff::civil::Date;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Knowledge, NOT_A_LINE, is_line, of_source};
use crate::model::syntax::string_enum::string_enum;

/// What a storage driver supports on Windows nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StorageDriver {
    /// Its id, as in `azure-blob`.
    pub id: String,
    /// When the row was last compared with its source. A row with the same id and a newer date supersedes it.
    #[schemars(with = "String", extend("format" = "date"))]
    pub date: Date,
    /// The names of the CSI driver, or of the provisioner of a StorageClass. One `*` in each stands for any text.
    pub drivers: Vec<String>,
    /// What it is called in messages, as in `Azure Blob Storage`.
    pub product: String,
    /// What Windows nodes can have of it.
    pub windows: DriverOnWindows,
    /// Whether the source states that Windows will not be supported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_planned: bool,
    /// The volumes that the row is about; absent: those of no other row for this driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<DriverVolumes>,
    /// What to use or install on Windows: lower case, no full stop.
    pub remedy: String,
    /// The page or file that documents it.
    pub source: String,
}

string_enum! {
    /// What Windows nodes can have of a storage driver.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum DriverOnWindows {
        /// Nothing: it has no node plugin for Windows, or none for these volumes.
        None = "none",
        /// It mounts these volumes over NFS, which Windows cannot mount.
        NotOverNfs = "not-over-nfs",
        /// A DaemonSet of its own with ordinary containers, which needs csi-proxy on the nodes.
        DaemonSet = "daemon-set",
        /// A DaemonSet of its own with HostProcess containers.
        HostProcess = "host-process",
    }
}

/// Volumes that have one of these properties. Letter case makes no difference.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DriverVolumes {
    /// Access modes of the claim or the volume, as in `ReadWriteMany`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<String>,
    /// File systems, as in `nfs`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fs_types: Vec<String>,
    /// Values of parameters of the StorageClass, or of `volumeAttributes`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Vec<String>>,
}

/// What an object shows about a volume of a storage driver.
#[derive(Clone, Debug, Default)]
pub struct VolumeOfDriver<'v> {
    /// The name of the driver, or of the provisioner.
    pub driver: &'v str,
    pub fs_type: Option<&'v str>,
    pub access_modes: Vec<&'v str>,
    /// The parameters of its StorageClass, or its attributes.
    pub parameters: Vec<(&'v str, &'v str)>,
}

impl StorageDriver {
    pub(super) fn form_problems(&self) -> Vec<String> {
        let mut problems = of_source(&self.source);
        if !is_line(&self.product) || !is_line(&self.remedy) {
            problems.push(NOT_A_LINE.to_owned());
        }
        let is_name = |name: &String| !name.is_empty() && name.matches('*').count() <= 1;
        if self.drivers.is_empty() || !self.drivers.iter().all(is_name) {
            problems.push("it needs drivers, each a name with at most one *".to_owned());
        }
        let is_empty = |volumes: &DriverVolumes| *volumes == DriverVolumes::default();
        if self.volumes.as_ref().is_some_and(is_empty) {
            problems.push("its volumes have no property".to_owned());
        }
        problems
    }

    fn is_named(&self, driver: &str) -> bool {
        let is = |name: &String| match name.split_once('*') {
            None => name == driver,
            Some((start, end)) => {
                let rest = driver.strip_prefix(start);
                rest.is_some_and(|rest| rest.ends_with(end))
            }
        };
        self.drivers.iter().any(is)
    }

    /// Whether Windows nodes cannot have the driver for these volumes.
    pub fn is_missing(&self) -> bool {
        self.windows == DriverOnWindows::None
    }
}

impl DriverVolumes {
    fn contains(&self, volume: &VolumeOfDriver<'_>) -> bool {
        let any = |known: &[String], text: &str| known.iter().any(|known| known.eq_ignore_ascii_case(text));
        let by_parameter = |(key, value): &(&str, &str)| {
            let mut of_key = self.parameters.iter();
            of_key.any(|(known, values)| known.eq_ignore_ascii_case(key) && any(values, value))
        };
        volume.fs_type.is_some_and(|fs_type| any(&self.fs_types, fs_type))
            || volume
                .access_modes
                .iter()
                .any(|mode| any(&self.access_modes, mode))
            || volume.parameters.iter().any(by_parameter)
    }
}

impl Knowledge {
    /// What is known of the driver of a volume: the row for volumes like this one, else the one for all of the driver.
    pub fn driver_of(&self, volume: &VolumeOfDriver<'_>) -> Option<&StorageDriver> {
        let rows = || self.drivers.iter().filter(|row| row.is_named(volume.driver));
        let is_meant = |row: &&StorageDriver| {
            row.volumes
                .as_ref()
                .is_some_and(|volumes| volumes.contains(volume))
        };
        rows()
            .find(is_meant)
            .or_else(|| rows().find(|row| row.volumes.is_none()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The id of the row for a volume, from `driver fsType accessMode key=value`, each of them optional.
    fn row(text: &str) -> &'static str {
        let mut words = text.split(' ');
        let mut volume = VolumeOfDriver {
            driver: words.next().unwrap_or_default(),
            ..VolumeOfDriver::default()
        };
        for word in words {
            match word.split_once('=') {
                Some(parameter) => volume.parameters.push(parameter),
                None if word.starts_with("Read") => volume.access_modes.push(word),
                None => volume.fs_type = Some(word),
            }
        }
        let known = Box::leak(Box::new(Knowledge::built_in()));
        known.driver_of(&volume).map_or("-", |row| &row.id)
    }

    #[test]
    fn a_volume_has_the_row_of_its_driver_protocol_file_system_and_access_mode() {
        for (volume, id) in [
            ("blob.csi.azure.com", "azure-blob"),
            ("file.csi.azure.com", "azure-file"),
            ("file.csi.azure.com protocol=smb", "azure-file"),
            ("file.csi.azure.com protocol=NFS", "azure-file-nfs"),
            ("file.csi.azure.com Protocol=nfs", "azure-file-nfs"),
            ("file.csi.azure.com nfs", "azure-file-nfs"),
            ("rook-ceph.rbd.csi.ceph.com", "ceph-rbd"),
            ("rbd.csi.ceph.com", "ceph-rbd"),
            ("rook-ceph.cephfs.csi.ceph.com", "cephfs"),
            ("csi.vsphere.vmware.com ntfs ReadWriteOnce", "vsphere"),
            (
                "csi.vsphere.vmware.com ReadWriteOnce ReadWriteMany",
                "vsphere-file",
            ),
            ("csi.vsphere.vmware.com nfs4", "vsphere-file"),
            ("csi.trident.netapp.io backendType=ontap-nas", "trident"),
            (
                "csi.trident.netapp.io backendType=ontap-nas trident.netapp.io/nasType=smb",
                "trident",
            ),
            (
                "csi.trident.netapp.io trident.netapp.io/nasType=nfs",
                "trident-nfs",
            ),
            ("csi.trident.netapp.io backendType=ontap-san", "trident-block"),
            ("csi-powerstore.dellemc.com", "dell"),
            ("csi.example.com", "-"),
            ("xrbd.csi.ceph.com", "-"),
        ] {
            assert_eq!(row(volume), id, "{volume}");
        }
    }
}
