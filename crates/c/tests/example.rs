//! The example is compiled as the header says, with the library as it is installed, and run.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The library, header and pkg-config file below `prefix`, as `make install` puts them.
fn install(prefix: &Path) {
    let built = std::env::current_exe().unwrap().with_file_name("libanabranch_c.so");
    for directory in ["lib/pkgconfig", "include"] {
        fs::create_dir_all(prefix.join(directory)).unwrap();
    }
    symlink(built, prefix.join("lib/libanabranch.so.0")).unwrap();
    symlink("libanabranch.so.0", prefix.join("lib/libanabranch.so")).unwrap();
    fs::copy(format!("{ROOT}/include/anabranch.h"), prefix.join("include/anabranch.h")).unwrap();
    let template = fs::read_to_string(format!("{ROOT}/../../packaging/pkgconfig/anabranch.pc.in")).unwrap();
    let description = template
        .replace("@PREFIX@", prefix.to_str().unwrap())
        .replace("@LIBDIR@", prefix.join("lib").to_str().unwrap())
        .replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(prefix.join("lib/pkgconfig/anabranch.pc"), description).unwrap();
}

#[test]
fn the_example_runs() {
    let directory = tempfile::tempdir().unwrap();
    let prefix = directory.path().join("prefix");
    install(&prefix);
    let found = Command::new("pkg-config")
        .args(["--cflags", "--libs", "anabranch"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"))
        .output();
    let Ok(found) = found else {
        eprintln!("left out: pkg-config is not installed (scripts/setup.sh test)");
        return;
    };
    assert!(found.status.success(), "{found:?}");
    let flags = String::from_utf8(found.stdout).unwrap();
    let program = directory.path().join("echo");
    let made = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o"])
        .arg(&program)
        .arg(format!("{ROOT}/examples/echo.c"))
        .args(flags.split_whitespace())
        .arg("-lpthread")
        .status()
        .unwrap();
    assert!(made.success());
    let said = Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.starts_with("hello over "), "{said}");
}
