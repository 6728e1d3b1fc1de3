//! Manual pages and completions of shells, from the definitions that read the command line and the configuration.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, line_break, roman};
use daemon::config::{SYSTEM_PATH, TableMeaning, tables};

use crate::arguments::Arguments;
use crate::exit;

/// The name of the page of the configuration, in section 5.
const CONFIGURATION: &str = "anabranch-config";
/// Of each shell, the directory below `share` and the name that its own packages use.
const SHELLS: [(Shell, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "anabranch"),
    (Shell::Zsh, "zsh/site-functions", "_anabranch"),
    (Shell::Fish, "fish/vendor_completions.d", "anabranch.fish"),
];

/// Writes `man/man1`, `man/man5` and the shells' directories below `share`. Same definitions, same bytes.
pub fn write(share: &Path) -> anyhow::Result<()> {
    let mut program = Arguments::command().disable_help_subcommand(true);
    program.build();
    let commands = share.join("man/man1");
    make(&commands)?;
    write_commands(&commands, &program)?;
    let formats = share.join("man/man5");
    make(&formats)?;
    put(&formats.join(format!("{CONFIGURATION}.5")), configuration().to_roff().as_bytes())?;
    for (shell, directory, name) in SHELLS {
        let directory = share.join(directory);
        make(&directory)?;
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut without_hidden(Arguments::command()), "anabranch", &mut script);
        put(&directory.join(name), &script)?;
    }
    Ok(())
}

/// The page of the command, and those of all below it.
fn write_commands(directory: &Path, command: &Command) -> anyhow::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_commands(directory, below)?;
    }
    let man = Man::new(command.clone())
        .manual("Anabranch")
        .source(concat!("Anabranch ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    render(&man, command, &mut page)?;
    put(&directory.join(man.get_filename()), &page)
}

fn render(man: &Man, command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(page)?;
    }
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(page)?;
    }
    let mut end = Roff::new();
    end.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in exit::HELP.lines().filter_map(|line| line.trim().split_once("  ")) {
        end.control("TP", []);
        end.text([bold(code)]);
        end.text([roman(meaning)]);
    }
    end.control("SH", ["SEE ALSO"]);
    let above =
        command.get_display_name().unwrap_or_default().rsplit_once('-').map_or("", |(above, _)| above);
    if !above.is_empty() {
        end.text([bold(above), roman("(1), ")]);
    }
    end.text([bold(CONFIGURATION), roman("(5)")]);
    end.to_writer(page)
}

/// `anabranch-config(5)`.
fn configuration() -> Roff {
    let mut page = Roff::new();
    let source = concat!("Anabranch ", env!("CARGO_PKG_VERSION"));
    page.control("TH", [CONFIGURATION, "5", "", source, "Anabranch"]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!(
        "{CONFIGURATION} - configuration of Anabranch's daemon, for devices and gateways"
    ))]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([
        roman("The file is TOML. It is read from "),
        bold("--config"),
        roman(" "),
        italic("FILE"),
        roman(", else "),
        italic("config.toml"),
        roman(" in the state directory, else "),
        italic(SYSTEM_PATH),
        roman(". Every key is optional. A mistake is told with its line, and nothing starts."),
    ]);
    for table in tables() {
        describe(&mut page, &table);
    }
    page.control("SH", ["SEE ALSO"]);
    page.text([
        bold("anabranch"),
        roman("(1), "),
        bold("anabranch-up"),
        roman("(1), "),
        bold("anabranch-gateway"),
        roman("(1)"),
    ]);
    page
}

fn describe(page: &mut Roff, table: &TableMeaning) {
    page.control("SH", [table.header.unwrap_or("AT THE TOP")]);
    if table.header.is_some() {
        page.text([roman(table.meaning)]);
    }
    for key in &table.keys {
        page.control("TP", []);
        page.text([bold(key.name), roman(" = "), roman(key.default)]);
        page.text([roman(key.meaning.replace('\n', " "))]);
        page.text([line_break(), roman(format!("Expected: {}.", key.accepts))]);
        if let Some(otherwise) = key.otherwise {
            page.text([roman(format!("Not set: {otherwise}; the value above is an example."))]);
        }
    }
}

/// Generators of completions offer hidden commands too.
fn without_hidden(command: Command) -> Command {
    let kept: Vec<Command> =
        command.get_subcommands().filter(|below| !below.is_hide_set()).cloned().map(without_hidden).collect();
    let mut shown = Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        shown = shown.about(about.clone());
    }
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned());
    }
    shown
        .disable_help_flag(command.is_disable_help_flag_set())
        .args(command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned())
        .subcommands(kept)
}

fn make(directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))
}

fn put(path: &Path, contents: &[u8]) -> anyhow::Result<()> {
    let written = fs::File::create(path).and_then(|mut file| file.write_all(contents));
    written.with_context(|| format!("cannot write {}", path.display()))
}
