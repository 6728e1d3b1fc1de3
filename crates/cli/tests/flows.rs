//! `anabranch flows` against a real control server of a device that is made up: as a table, as JSON, and again and again.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

#[path = "../../daemon/examples/made_up/mod.rs"]
mod made_up;
mod program;
mod running;

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;

use anabranch::control::Role;
use daemon::control::{Callers, ControlServer};
use identity::StateDirectory;
use made_up::MadeUp;
use program::Program;
use running::Running;
use serde_json::Value;

fn served() -> (Program, ControlServer) {
    let program = Program::new();
    let state = StateDirectory::create(program.state.clone()).unwrap();
    let backend = Arc::new(MadeUp::new(Role::Device, 4, &state).unwrap());
    let callers = Callers::of_state(&state, None).unwrap();
    let server = ControlServer::start(&state, callers, backend).unwrap();
    (program, server)
}

#[test]
fn each_flow_is_a_line_with_its_network_and_why() {
    let (program, _server) = served();
    let flows = program.run(&["flows", "--json"]).json();
    let flows = flows["flows"].as_array().unwrap();
    let table = program.run(&["flows"]);
    let mut lines = table.stdout.lines();
    let headings: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        headings,
        [
            "PROGRAM",
            "USER",
            "PROTOCOL",
            "DESTINATION",
            "TREATMENT",
            "NETWORK",
            "OUT",
            "IN",
            "CARRIED",
            "RTT",
            "WHY"
        ]
    );
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), flows.len());
    for (line, flow) in lines.iter().zip(flows) {
        let part = |name: &str| flow[name].as_str().unwrap();
        let program = format!("{} ({})", part("program"), flow["process"]);
        for shown in [&program[..], part("protocol"), part("destination"), part("treatment"), part("why")] {
            assert!(line.contains(shown), "{shown} is not in {line}");
        }
        assert!(line.contains(flow["network"].as_str().unwrap_or(" - ")), "{line}");
    }
    assert!(lines[4].contains("wlan0") && lines[4].contains("20.0 ms"), "{}", lines[4]);
}

#[test]
fn watching_tells_again_and_again() {
    let (program, _server) = served();
    for (arguments, begins) in
        [(&["flows", "--watch", "--json"][..], "{"), (&["flows", "--watch"], "\u{1b}[")]
    {
        let mut command = program.command();
        let watching = command.args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut watching = Running(watching);
        let lines = BufReader::new(watching.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        let told: Vec<String> = lines.filter(|line| line.starts_with(begins)).take(2).collect();
        assert_eq!(told.len(), 2, "{arguments:?}");
        if begins == "{" {
            // Rates go on meanwhile.
            let [first, second] = [0, 1].map(|at| serde_json::from_str::<Value>(&told[at]).unwrap());
            assert_eq!(first["flows"][3]["destination"], second["flows"][3]["destination"]);
            assert_ne!(first["flows"][3]["receiving"], second["flows"][3]["receiving"]);
        }
    }
}
