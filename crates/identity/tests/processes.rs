//! Several processes on one state directory: this test program starts itself.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use identity::{
    InvitationKind, InvitationSecret, KeyPair, Peers, PeersError, PublicKey, Registry, StateDirectory,
    UnixSeconds,
};
use wire::join_link::JoinLink;

const NOW: UnixSeconds = UnixSeconds(1_800_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const JOB: &str = "ANABRANCH_TEST_JOB";
const STATE: &str = "ANABRANCH_TEST_STATE";
const NUMBER: &str = "ANABRANCH_TEST_NUMBER";

fn state() -> (tempfile::TempDir, StateDirectory) {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    (directory, state)
}

fn start(state: &StateDirectory, job: &str, number: u8) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "job_of_a_child", "--nocapture"])
        .env(JOB, job)
        .env(STATE, state.path())
        .env(NUMBER, number.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What the children said behind `answer:`.
fn answers(children: Vec<Child>) -> Vec<String> {
    let answer = |child: Child| {
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        text.split("answer:").nth(1).unwrap().lines().next().unwrap().trim().to_owned()
    };
    children.into_iter().map(answer).collect()
}

fn link(key: u8) -> JoinLink {
    JoinLink {
        kind: InvitationKind::Gateway,
        public_key: [key; 32],
        addresses: vec!["192.0.2.1:4600".parse().unwrap()],
        tcp_port: None,
        secret: InvitationSecret([key; 16]),
        expires: UnixSeconds(NOW.0 + 60),
    }
}

/// Not a test of its own: what the children of the other tests do.
#[test]
fn job_of_a_child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let state = StateDirectory::open(std::env::var(STATE).unwrap(), "").unwrap();
    let number: u8 = std::env::var(NUMBER).unwrap().parse().unwrap();
    let answer = match job.as_str() {
        "key" => KeyPair::load_or_create(&state).unwrap().public().to_string(),
        "join" => {
            let joined =
                Peers::change(&state, |peers| peers.join(&link(number), None, PublicKey([0; 32]), NOW));
            joined.unwrap().name
        }
        "redeem" => {
            let mut registry = Registry::open(&state, Default::default(), None).unwrap();
            let redeemed =
                registry.redeem(&InvitationSecret(secret_of(&state)), PublicKey([number; 32]), NOW);
            redeemed.map_or_else(|error| error.to_string(), |redeemed| redeemed.client.name)
        }
        "invite" => {
            let mut registry = Registry::open(&state, Default::default(), None).unwrap();
            for round in 0..20 {
                let name = format!("c{number}-{round}");
                let secret = registry.invite(InvitationKind::Gateway, &name, DAY, NOW).unwrap().secret;
                registry
                    .redeem(&secret, PublicKey(std::array::from_fn(|_| number * 20 + round)), NOW)
                    .unwrap();
            }
            "done".to_owned()
        }
        other => panic!("{other}"),
    };
    println!("\nanswer: {answer}");
}

fn secret_of(state: &StateDirectory) -> [u8; 16] {
    std::fs::read(state.file("secret")).unwrap().try_into().unwrap()
}

#[test]
fn all_get_the_same_key() {
    let (_directory, state) = state();
    let mut keys = answers((0..6).map(|number| start(&state, "key", number)).collect());
    keys.dedup();
    assert_eq!(keys, [KeyPair::load(&state).unwrap().public().to_string()]);
}

#[test]
fn no_join_is_lost() {
    let (_directory, state) = state();
    let mut names = answers((1..=6).map(|number| start(&state, "join", number)).collect());
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 6);
    let peers = Peers::load(&state).unwrap();
    assert_eq!(peers.of_kind(InvitationKind::Gateway).count(), 6);
    Peers::change(&state, |peers| Ok::<_, PeersError>(peers.forget(&names[0]))).unwrap();
    assert_eq!(Peers::load(&state).unwrap().of_kind(InvitationKind::Gateway).count(), 5);
}

#[test]
fn one_of_many_redeems() {
    let (_directory, state) = state();
    let mut registry = Registry::create(&state, Default::default()).unwrap();
    let secret = registry.invite(InvitationKind::Gateway, "van", DAY, NOW).unwrap().secret;
    std::fs::write(state.file("secret"), secret.0).unwrap();
    let answers = answers((1..=6).map(|number| start(&state, "redeem", number)).collect());
    assert_eq!(answers.iter().filter(|answer| *answer == "van").count(), 1, "{answers:?}");
    assert_eq!(
        answers.iter().filter(|answer| answer.contains("used by another device")).count(),
        5,
        "{answers:?}"
    );
    assert_eq!(registry.clients().unwrap().len(), 1);
}

#[test]
fn writers_wait_for_each_other() {
    let (_directory, state) = state();
    let mut registry = Registry::create(&state, Default::default()).unwrap();
    answers((0..3).map(|number| start(&state, "invite", number)).collect());
    let clients = registry.clients().unwrap();
    let mut addresses: Vec<_> = clients.iter().map(|client| client.lease.v4.unwrap().address).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!((clients.len(), addresses.len()), (60, 60));
}
