//! Manual pages and completions: what a package installs.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::fs;
use std::path::Path;
use std::process::Command;

fn written(share: &Path) {
    let status = Command::new(env!("CARGO_BIN_EXE_anabranch")).arg("write-pages").arg(share).status();
    assert!(status.unwrap().success());
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// What the program lists in its help, commands below commands included.
fn commands(words: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_anabranch")).args(words).arg("--help").output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let mut found =
        vec![format!("anabranch{}.1", words.iter().map(|word| format!("-{word}")).collect::<String>())];
    // `lab` and `demo` hand their words on to another program.
    if !told.contains(&["Usage: anabranch", &words.join(" ")].join(if words.is_empty() { "" } else { " " })) {
        return found;
    }
    let listed = told.split_once("\nCommands:\n").map_or("", |(_, listed)| listed);
    for line in listed.lines().take_while(|line| line.starts_with("  ")) {
        if let Some(name) = line
            .split_whitespace()
            .next()
            .filter(|name| line.starts_with(&format!("  {name}")) && *name != "help")
        {
            found.extend(commands(&[words, &[name]].concat()));
        }
    }
    found
}

#[test]
fn every_command_that_help_lists_has_a_page_and_no_other() {
    let share = tempfile::tempdir().unwrap();
    written(share.path());
    let mut listed = commands(&[]);
    listed.sort();
    assert!(listed.len() > 40 && listed.contains(&"anabranch-gateway-invite.1".to_owned()), "{listed:?}");
    assert_eq!(names(&share.path().join("man/man1")), listed);
    assert_eq!(names(&share.path().join("man/man5")), ["anabranch-config.5"]);
}

#[test]
fn pages_are_sound_and_say_what_the_definitions_say() {
    let share = tempfile::tempdir().unwrap();
    written(share.path());
    let invite = fs::read_to_string(share.path().join("man/man1/anabranch-gateway-invite.1")).unwrap();
    assert!(invite.contains("Show the link as a QR code too"), "{invite}");
    let configuration = fs::read_to_string(share.path().join("man/man5/anabranch-config.5")).unwrap();
    assert!(configuration.contains("default_treatment") && configuration.contains("[gateway]"));

    for section in ["man1", "man5"] {
        let directory = share.path().join("man").join(section);
        for name in names(&directory) {
            let groff = Command::new("groff")
                .args(["-man", "-Tutf8", "-ww", "-z"])
                .arg(directory.join(&name))
                .output();
            let Ok(groff) = groff else {
                assert!(std::env::var_os("CI").is_none(), "groff is missing (package groff-base)");
                return eprintln!("skipped: groff is missing (package groff-base)");
            };
            let faults = String::from_utf8_lossy(&groff.stderr);
            assert!(groff.status.success() && faults.is_empty(), "{name}: {faults}");
        }
    }
}

#[test]
fn bash_completes_what_is_listed_and_nothing_hidden() {
    let share = tempfile::tempdir().unwrap();
    written(share.path());
    let script = share.path().join("bash-completion/completions/anabranch");
    let completed = |words: &str, last: &str| {
        let line = format!(
            "source {}; COMP_WORDS=(anabranch {words} '{last}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _anabranch anabranch '{last}' x; echo \"${{COMPREPLY[@]}}\"",
            script.display()
        );
        let output = Command::new("bash").args(["--norc", "-c", &line]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed("", "sta"), "status");
    assert_eq!(completed("gateway", "inv"), "invite");
    assert_eq!(completed("gateway invite van", "--qr"), "--qr");
    assert_eq!(completed("", "write"), "");
    assert_eq!(completed("up", "--deta"), "");
    for (directory, name) in
        [("zsh/site-functions", "_anabranch"), ("fish/vendor_completions.d", "anabranch.fish")]
    {
        let script = fs::read_to_string(share.path().join(directory).join(name)).unwrap();
        assert!(
            script.contains("invite") && !script.contains("write-pages") && !script.contains("switch-on")
        );
    }
}
