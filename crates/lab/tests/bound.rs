//! `anabranch lab run LINKALIKE/bound --file`: the example of docs/lab.md, and what is told of files that are wrong.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const FILE: &str = "# Two homes behind one wall";
const COMMAND: &str = "$ anabranch lab run LINKALIKE/bound --file street.txt\n";

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md")).unwrap()
}

/// What stands in `text` between `begin` and the end of its block.
fn block<'a>(text: &'a str, begin: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap();
    rest.split_once("```").unwrap().0
}

fn lab(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch-lab"));
    command.current_dir(directory).args(arguments).output().unwrap()
}

#[test]
fn the_page_shows_what_is_printed_and_nothing_is_kept() {
    let (page, directory) = (page(), tempfile::tempdir().unwrap());
    fs::create_dir(directory.path().join("experiments")).unwrap();
    fs::write(directory.path().join("street.txt"), [FILE, block(&page, FILE)].concat()).unwrap();
    let printed = lab(directory.path(), &["run", "LINKALIKE/bound", "--file", "street.txt"]);
    let (text, told) = (String::from_utf8(printed.stdout).unwrap(), String::from_utf8_lossy(&printed.stderr));
    assert!(printed.status.success(), "{told}");
    assert_eq!(text, block(&page, COMMAND), "docs/lab.md shows something else");
    assert_eq!(fs::read_dir(directory.path().join("experiments")).unwrap().count(), 0, "nothing is kept");
}

#[test]
fn a_wrong_line_is_told_with_its_number_and_other_experiments_take_no_file() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "# mine\n400/25 | 3000/25 0.9 0.8 0.5\n").unwrap();
    for (what, file, told) in [
        (
            "LINKALIKE/bound",
            "file",
            "read file: line 2: neighbour 0: there are four chances, not 3; a neighbourhood is a line like",
        ),
        ("LINKALIKE/bound", "none", "open none"),
        ("LINKALIKE/yield", "file", "LINKALIKE/yield does not take --file"),
    ] {
        let output = lab(directory.path(), &["run", what, "--file", file]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(told), "{error}");
    }
    let both = lab(directory.path(), &["run", "LINKALIKE/bound", "--file", "file", "--seeds", "3"]);
    assert!(String::from_utf8_lossy(&both.stderr).contains("cannot be used with"));
}
