//! Which kernel modules a set of modules needs, and in which order they must be loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The module files of one kernel, by module name (`-` written as `_`, without `.ko`).
#[derive(Clone, Debug)]
pub struct ModuleTree {
    files: BTreeMap<String, PathBuf>,
}

impl ModuleTree {
    /// Finds every uncompressed module under `directory` (`/lib/modules/RELEASE`).
    ///
    /// # Errors
    /// If a directory cannot be read.
    pub fn read(directory: &Path) -> Result<Self> {
        let mut files = BTreeMap::new();
        let mut waiting = vec![directory.to_path_buf()];
        while let Some(directory) = waiting.pop() {
            let entries =
                fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
            for entry in entries {
                let entry = entry?;
                let path = entry.path();
                if entry.file_type()?.is_dir() {
                    waiting.push(path);
                } else if let Some(name) =
                    path.file_name().and_then(|name| name.to_str()?.strip_suffix(".ko"))
                {
                    files.insert(name.replace('-', "_"), path.clone());
                }
            }
        }
        Ok(Self { files })
    }

    /// The files of `wanted` and all they depend on, each after what it needs. Names without a file are left out: they
    /// are built into this kernel or unknown to it.
    ///
    /// # Errors
    /// If a module file cannot be read.
    pub fn load_order<'a>(&self, wanted: impl IntoIterator<Item = &'a str>) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        let mut seen = BTreeSet::new();
        for name in wanted {
            self.visit(&name.replace('-', "_"), &mut seen, &mut order)?;
        }
        Ok(order)
    }

    fn visit(&self, name: &str, seen: &mut BTreeSet<String>, order: &mut Vec<PathBuf>) -> Result<()> {
        let Some(path) = self.files.get(name) else { return Ok(()) };
        if !seen.insert(name.to_owned()) {
            return Ok(());
        }
        let image = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        for dependency in dependencies(&image) {
            self.visit(&dependency.replace('-', "_"), seen, order)?;
        }
        order.push(path.clone());
        Ok(())
    }
}

/// The names in the `depends=` entry and the `softdep=pre:` entries of a module's `.modinfo` section, whose entries are
/// strings ended by zero bytes.
fn dependencies(image: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    for entry in image.split(|&byte| byte == 0) {
        let Ok(entry) = std::str::from_utf8(entry) else { continue };
        if let Some(list) = entry.strip_prefix("depends=") {
            names.extend(list.split(',').filter(|name| !name.is_empty()).map(str::to_owned));
        } else if let Some(list) = entry.strip_prefix("softdep=pre:") {
            names.extend(list.split_whitespace().take_while(|word| *word != "post:").map(str::to_owned));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_what_it_needs() {
        let directory = std::env::temp_dir().join(format!("ab-modules-{}", std::process::id()));
        fs::create_dir_all(directory.join("kernel/net")).unwrap();
        let write =
            |name: &str, text: &[u8]| fs::write(directory.join("kernel/net").join(name), text).unwrap();
        write("top.ko", b"\x7fELF\0license=GPL\0depends=middle-one,built_in\0\xff\xfe\0");
        write("middle-one.ko", b"\0depends=\0softdep=pre: bottom post: later\0");
        write("bottom.ko", b"\0depends=\0");
        write("later.ko", b"\0depends=\0");
        let tree = ModuleTree::read(&directory).unwrap();
        let order = tree.load_order(["top", "bottom", "unknown"]).unwrap();
        let names: Vec<_> = order.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(names, ["bottom.ko", "middle-one.ko", "top.ko"]);
    }
}
