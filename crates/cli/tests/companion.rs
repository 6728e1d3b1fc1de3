//! `anabranch demo` and `anabranch lab` are another program. Alone in its file: a program that was just written cannot be
//! run while another thread of this process starts one.

mod program;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use program::Ran;

#[test]
fn the_lab_is_another_program() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("anabranch");
    fs::copy(env!("CARGO_BIN_EXE_anabranch"), &program).unwrap();
    let run = |arguments: &[&str], path: &Path| -> Ran {
        Command::new(&program).args(arguments).env("PATH", path).output().unwrap().into()
    };
    let missing = run(&["demo", "--json", "x"], Path::new("/nonexistent"));
    missing.fails(1, "the program anabranch-lab is missing");

    let write = |path: &Path, word: &str| {
        fs::write(path, format!("#!/bin/sh\necho {word} \"$@\"\nexit 7\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let elsewhere = directory.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    write(&elsewhere.join("anabranch-lab"), "path");
    let found = run(&["demo", "--json", "x", "--state", "y"], &elsewhere);
    assert_eq!((found.code, found.stdout.as_str()), (7, "path demo --json x --state y\n"));
    write(&directory.path().join("anabranch-lab"), "beside");
    assert_eq!(run(&["lab", "run", "A/b", "--help"], &elsewhere).stdout, "beside run A/b --help\n");
}
