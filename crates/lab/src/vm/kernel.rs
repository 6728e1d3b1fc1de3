//! Debian's packaged kernel and static busybox, unpacked into a cache directory.

use std::env;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::MachineError;
use super::initramfs::unique_number;

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// What the virtual machine starts: an uncompressed `vmlinux`, or the packaged `vmlinuz` if it could not be unpacked.
    pub image: PathBuf,
    /// `/lib/modules/RELEASE` of the package.
    pub modules: PathBuf,
    /// The kernel's release, e.g. `6.1.0-56-amd64`.
    pub release: String,
    /// A statically linked busybox.
    pub busybox: PathBuf,
}

impl Kernel {
    /// The kernel in the cache, or else Debian's current one, downloaded by `apt-get download` (no root needed) and unpacked.
    ///
    /// # Errors
    /// [`MachineError::Missing`] if the packages cannot be had, with the command that mends it.
    pub fn find() -> Result<Self, MachineError> {
        let cache = cache_directory()?;
        if let Some(kernel) = Self::in_cache(&cache) {
            return Ok(kernel);
        }
        require_apt()?;
        let package = match current_kernel_package() {
            Some(package) => package,
            None => {
                refresh_package_lists()?;
                current_kernel_package().ok_or_else(|| missing("the package linux-image-amd64"))?
            }
        };
        unpack_package(&cache, "busybox-static", "busybox-static", |_| Ok(()))?;
        unpack_package(&cache, &package, &package, keep_uncompressed_image)?;
        Self::in_cache(&cache).ok_or_else(|| {
            MachineError::Other(anyhow::anyhow!(
                "the package {package} holds no kernel; remove {}",
                cache.display()
            ))
        })
    }

    /// The kernel as the package has it, which unpacks itself: a slower start, but of a machine that can be suspended.
    pub fn packed_image(&self) -> PathBuf {
        self.image.with_file_name(format!("vmlinuz-{}", self.release))
    }

    /// The newest complete kernel below `cache`.
    fn in_cache(cache: &Path) -> Option<Self> {
        let busybox = cache.join("busybox-static/bin/busybox");
        let mut packages: Vec<_> = fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path()).collect();
        packages.sort();
        packages.into_iter().rev().find_map(|package| {
            let name = package.file_name()?.to_str()?;
            let release = name.strip_prefix("linux-image-")?.to_owned();
            let image = ["vmlinux", "vmlinuz"].map(|kind| package.join(format!("boot/{kind}-{release}")));
            let image = image.into_iter().find(|image| image.exists())?;
            let modules = package.join("lib/modules").join(&release);
            (modules.exists() && busybox.exists()).then(|| Self {
                image,
                modules,
                release,
                busybox: busybox.clone(),
            })
        })
    }
}

/// Where downloads are kept: `.cache/vm` of the project the current directory lies in, else below `$XDG_CACHE_HOME`.
///
/// # Errors
/// If there is no home directory either.
pub fn cache_directory() -> Result<PathBuf, MachineError> {
    let here = env::current_dir().context("finding the current directory")?;
    if let Some(project) = here.ancestors().find(|directory| directory.join("crates/lab/Cargo.toml").exists())
    {
        return Ok(project.join(".cache/vm"));
    }
    let cache = match env::var_os("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(cache.join("anabranch/vm"))
}

/// Finds `qemu-system-x86_64`; as root on Debian installs it when it is missing.
///
/// # Errors
/// [`MachineError::Missing`] with the command that installs it.
pub fn find_qemu() -> Result<PathBuf, MachineError> {
    if let Some(qemu) = find_program("qemu-system-x86_64") {
        return Ok(qemu);
    }
    let unavailable = || MachineError::Missing {
        what: "qemu-system-x86_64 is not installed".into(),
        remedy: "apt-get update && apt-get install --no-install-recommends qemu-system-x86".into(),
    };
    if find_program("apt-get").is_none() || !is_root() {
        return Err(unavailable());
    }
    let install = || run_quietly("apt-get", &["install", "-y", "--no-install-recommends", "qemu-system-x86"]);
    if !install() {
        refresh_package_lists()?;
        install();
    }
    find_program("qemu-system-x86_64").ok_or_else(unavailable)
}

/// The file that the shell would run for `name`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

fn require_apt() -> Result<(), MachineError> {
    for program in ["apt-get", "apt-cache", "dpkg"] {
        if find_program(program).is_none() {
            return Err(MachineError::Missing {
                what: format!(
                    "the test kernel comes from Debian's packages, and {program} is not on this machine"
                ),
                remedy: "run the vm bed on Debian 12, or any system with apt and Debian's package lists"
                    .into(),
            });
        }
    }
    Ok(())
}

/// The package that `linux-image-amd64` stands for, e.g. `linux-image-6.1.0-56-amd64`.
fn current_kernel_package() -> Option<String> {
    let output = Command::new("apt-cache").args(["depends", "linux-image-amd64"]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let package = text.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"))?;
    Some(format!("linux-image-{package}"))
}

fn refresh_package_lists() -> Result<(), MachineError> {
    if is_root() && run_quietly("apt-get", &["update"]) {
        Ok(())
    } else {
        Err(missing("Debian's package lists"))
    }
}

/// Downloads `package` and unpacks it to `cache/name`, complete or not at all.
fn unpack_package(
    cache: &Path,
    package: &str,
    name: &str,
    finish: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> Result<(), MachineError> {
    let place = cache.join(name);
    if place.exists() {
        return Ok(());
    }
    let work = cache.join(format!("unpacking-{name}-{}", unique_number()));
    let tree = work.join("tree");
    fs::create_dir_all(&tree).with_context(|| format!("creating {}", tree.display()))?;
    let result = download_and_unpack(&work, &tree, package).and_then(|()| {
        finish(&tree)?;
        // Another process may have been first; its tree is as good.
        if fs::rename(&tree, &place).is_err() && !place.exists() {
            return Err(anyhow::anyhow!("{} cannot be written", place.display()).into());
        }
        Ok(())
    });
    fs::remove_dir_all(&work).with_context(|| format!("removing {}", work.display()))?;
    result
}

fn download_and_unpack(work: &Path, tree: &Path, package: &str) -> Result<(), MachineError> {
    let status = Command::new("apt-get")
        .args(["download", package])
        .current_dir(work)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .context("starting apt-get")?;
    let archive = fs::read_dir(work)
        .context("reading the download directory")?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let (true, Some(archive)) = (status.success(), archive) else {
        return Err(missing(&format!("the package {package}")));
    };
    let status = Command::new("dpkg").arg("-x").arg(&archive).arg(tree).status().context("starting dpkg")?;
    if status.success() {
        Ok(())
    } else {
        Err(anyhow::anyhow!("dpkg could not unpack {}", archive.display()).into())
    }
}

/// Puts an uncompressed `vmlinux` beside the `vmlinuz`: unpacking it inside the emulator would cost 2 s of every boot.
fn keep_uncompressed_image(tree: &Path) -> anyhow::Result<()> {
    let boot = tree.join("boot");
    for entry in fs::read_dir(&boot)?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(release) = name.strip_prefix("vmlinuz-") else { continue };
        let packed = fs::read(entry.path())?;
        let Some(start) = packed.windows(XZ_MAGIC.len()).position(|window| window == XZ_MAGIC) else {
            continue;
        };
        if let Some(image) = unpack_xz(&packed[start..]) {
            fs::write(boot.join(format!("vmlinux-{release}")), image)?;
        }
    }
    Ok(())
}

/// What `xz` makes of the stream at the start of `packed`; `None` if it is not there or the result is no ELF file.
fn unpack_xz(packed: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new("xz")
        .args(["-dc", "--single-stream"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let packed = packed.to_vec();
    // The boot image goes on after the stream, so this write may end in a broken pipe.
    let writer = std::thread::spawn(move || input.write_all(&packed).is_ok());
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?;
    output.stdout.starts_with(b"\x7fELF").then_some(output.stdout)
}

fn missing(what: &str) -> MachineError {
    MachineError::Missing {
        what: format!("{what} cannot be had"),
        remedy: "apt-get update (as root, with a network)".into(),
    }
}

fn run_quietly(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}

const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";
