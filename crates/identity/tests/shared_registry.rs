//! A registry that several gateways share, on a real PostgreSQL server.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod database;

use std::time::{Duration, Instant};

use database::Database;
use identity::{
    InvitationKind, Ipv4Pool, OpenError, Protocol, PublicKey, RedeemError, Registry, RegistryError,
    RegistryPlace, SharedRegistry, UnixSeconds, Usage, Used,
};
use policy::calendar::Day;
use policy::limit::Limit;
use units::{BitRate, Bytes};

const DAY: Duration = Duration::from_secs(86_400);
const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

fn place(connection: String) -> RegistryPlace {
    RegistryPlace::Shared(SharedRegistry { connection, certificates: None })
}

fn open(database: &Database) -> Registry {
    Registry::create(place(database.connection()), Ipv4Pool::default()).unwrap()
}

fn later(seconds: u64) -> UnixSeconds {
    UnixSeconds(NOW.0 + seconds)
}

#[test]
fn gateways_share_clients_invitations_and_ports() {
    let Some(database) = Database::start() else { return };
    let (mut here, mut there) = (open(&database), open(&database));
    assert_eq!(here.pools().v6, there.pools().v6, "the network is drawn once");
    let secret = here.invite(InvitationKind::Gateway, "van", DAY, NOW).unwrap().secret;
    let van = there.redeem(&secret, PublicKey([1; 32]), NOW).unwrap().client;
    assert_eq!(van.lease.v4.unwrap().to_string(), "10.86.0.2/16");
    assert_eq!(here.client(PublicKey([1; 32])).unwrap(), Some(van.clone()));
    assert!(matches!(here.redeem(&secret, PublicKey([2; 32]), NOW), Err(RedeemError::Used { .. })));
    there.seen(PublicKey([1; 32]), later(5)).unwrap();
    assert_eq!(here.clients().unwrap()[0].last_seen, Some(later(5)));

    let usage = Usage { month: Day(31), bytes: vec![(PublicKey([1; 32]), Bytes(7))] };
    here.count(&usage).unwrap();
    assert_eq!(there.count(&usage).unwrap()[0].used, Used { month: Day(31), bytes: Bytes(14) });
    let limited = here.limit("van", Some(Limit::At(BitRate(5))), Some(Limit::default())).unwrap();
    assert_eq!(there.clients().unwrap(), [limited]);

    let port = 80.try_into().unwrap();
    let to = |number: u16| number.try_into().unwrap();
    here.forward(Some("van"), Protocol::Tcp, port, to(8_080)).unwrap();
    there.forward(None, Protocol::Tcp, port, to(8_081)).unwrap();
    let forwards = here.forwards().unwrap();
    assert_eq!((forwards.len(), forwards[0].device_port), (1, to(8_081)));
    here.revoke("van").unwrap();
    assert!(there.forwards().unwrap().is_empty(), "a client's ports go with it");
    assert_eq!(there.client(PublicKey([1; 32])).unwrap(), None);
    assert!(matches!(there.redeem(&secret, PublicKey([1; 32]), NOW), Err(RedeemError::Used { .. })));
}

#[test]
fn what_has_expired_is_so_everywhere_and_what_is_refused_changes_nothing() {
    let Some(database) = Database::start() else { return };
    let (mut here, mut there) = (open(&database), open(&database));
    let secret = here.invite(InvitationKind::Gateway, "van", DAY, NOW).unwrap().secret;
    let late = there.redeem(&secret, PublicKey([1; 32]), later(86_400));
    assert!(matches!(late, Err(RedeemError::Expired { .. })));
    let set_back = here.redeem(&secret, PublicKey([1; 32]), NOW);
    assert!(matches!(set_back, Err(RedeemError::Expired { .. })));
    assert!(there.invitations(NOW).unwrap()[0].expired);

    let mut small =
        Registry::open(place(database.connection()), "10.0.0.0/30".parse().unwrap(), None).unwrap();
    let mut secret = |name| small.invite(InvitationKind::Gateway, name, DAY, NOW).unwrap().secret;
    let (one, other) = (secret("one"), secret("other"));
    small.redeem(&one, PublicKey([1; 32]), NOW).unwrap();
    assert!(matches!(small.redeem(&other, PublicKey([2; 32]), NOW), Err(RedeemError::NoAddressLeft)));
    assert!(there.redeem(&other, PublicKey([2; 32]), NOW).is_ok(), "the invitation was kept");
}

#[test]
fn gateways_that_let_devices_in_at_once_lease_every_address_once() {
    let Some(database) = Database::start() else { return };
    const GATEWAYS: u8 = 4;
    const EACH: u8 = 10;
    let mut first = open(&database);
    let secrets = (0..GATEWAYS * EACH).map(|number| {
        first.invite(InvitationKind::Gateway, &format!("device {number}"), DAY, NOW).unwrap().secret
    });
    let secrets: Vec<_> = secrets.collect();
    std::thread::scope(|scope| {
        for (gateway, part) in secrets.chunks(EACH.into()).enumerate() {
            let mut registry = open(&database);
            scope.spawn(move || {
                for (number, secret) in part.iter().enumerate() {
                    let key = [(gateway * usize::from(EACH) + number) as u8; 32];
                    assert!(registry.redeem(secret, PublicKey(key), NOW).unwrap().first_time);
                }
            });
        }
    });
    let mut leases: Vec<_> =
        first.clients().unwrap().iter().map(|client| client.lease.v4.unwrap().address).collect();
    leases.sort();
    leases.dedup();
    assert_eq!(leases.len(), usize::from(GATEWAYS * EACH));
}

#[test]
fn a_database_that_goes_is_named_and_used_again_when_it_is_back() {
    let Some(mut database) = Database::start() else { return };
    let mut registry = open(&database);
    let secret = registry.invite(InvitationKind::Gateway, "van", DAY, NOW).unwrap().secret;
    database.kill();
    let begun = Instant::now();
    for _ in 0..100 {
        let error = registry.client(PublicKey([1; 32])).unwrap_err();
        assert!(matches!(error, RegistryError::Gone(_)), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "it is not waited for at every question");
    let failed = registry.redeem(&secret, PublicKey([1; 32]), NOW).unwrap_err();
    assert_eq!(failed.refusal(), wire::hello::Refusal::Unavailable);
    let opened =
        Registry::open(place(database.connection()), Ipv4Pool::default(), None).map(drop).unwrap_err();
    assert!(opened.to_string().contains("out of reach"), "{opened}");
    database.run();
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = registry.redeem(&secret, PublicKey([1; 32]), NOW) {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(registry.clients().unwrap().len(), 1);
}

#[test]
fn a_database_that_hangs_is_not_waited_for_for_ever() {
    let Some(database) = Database::start() else { return };
    let mut registry = open(&database);
    registry.invite(InvitationKind::Gateway, "van", DAY, NOW).unwrap();
    database.hang(true);
    let begun = Instant::now();
    for _ in 0..100 {
        let error = registry.invitations(NOW).unwrap_err();
        assert!(matches!(error, RegistryError::Gone(_)), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    database.hang(false);
    let deadline = Instant::now() + Duration::from_secs(30);
    while registry.invitations(NOW).is_err() {
        assert!(Instant::now() < deadline, "it is used again");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_question_that_is_under_way_when_the_database_hangs_is_given_up() {
    let Some(database) = Database::start() else { return };
    let mut registry = open(&database);
    // Somebody holds the table, so that the question waits in the server, which then hangs and cannot give it up either.
    let mut holder = database.psql("BEGIN; LOCK TABLE anabranch.clients; SELECT pg_sleep(60)");
    let mut holder = holder.stdout(std::process::Stdio::null()).spawn().unwrap();
    let held = || database.sql("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'");
    let deadline = Instant::now() + Duration::from_secs(30);
    while held().trim() != "1" {
        assert!(Instant::now() < deadline, "the table is not held");
        std::thread::sleep(Duration::from_millis(50));
    }
    let (sender, answer) = std::sync::mpsc::channel();
    let asking = std::thread::spawn(move || {
        let begun = Instant::now();
        let error = registry.clients().unwrap_err();
        sender.send((error, begun.elapsed())).unwrap();
        registry
    });
    std::thread::sleep(Duration::from_millis(500));
    database.hang(true);
    let (error, waited) = answer.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(matches!(error, RegistryError::Gone(_)), "{error}");
    println!("given up after {waited:?}");
    assert!(waited < Duration::from_secs(8), "{waited:?}");
    let mut registry = asking.join().unwrap();
    let begun = Instant::now();
    registry.clients().unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(1), "it is not asked again at once");
    database.hang(false);
    holder.kill().unwrap();
    holder.wait().unwrap();
    database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()");
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = registry.clients() {
        assert!(Instant::now() < deadline, "{error}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn older_tables_are_looked_at_without_a_change() {
    let Some(database) = Database::start() else { return };
    let inspect = || Registry::inspect(place(database.connection()), Ipv4Pool::default(), None);
    let none = inspect().unwrap_err().to_string();
    assert!(none.contains("gateway init"), "{none}");
    assert_eq!(database.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'anabranch'").trim(), "0");
    let pools = open(&database).pools();
    database.sql(
        "DROP TABLE anabranch.gateways; ALTER TABLE anabranch.clients DROP COLUMN rate, DROP COLUMN quota, DROP COLUMN used, DROP COLUMN month;
         UPDATE anabranch.version SET number = 1",
    );
    let version = || database.sql("SELECT number FROM anabranch.version").trim().to_owned();
    assert_eq!(inspect().unwrap(), pools);
    assert_eq!(version(), "1");
    open(&database).clients().unwrap();
    assert_ne!(version(), "1");
    database.sql("UPDATE anabranch.version SET number = 99");
    assert!(matches!(inspect(), Err(OpenError::Newer { found: 99, .. })));
}

#[test]
fn places_that_make_no_sense_are_named() {
    let refused = |connection: &str, certificates: Option<&str>| {
        let certificates = certificates.map(Into::into);
        let place = SharedRegistry { connection: connection.to_owned(), certificates };
        match Registry::open(RegistryPlace::Shared(place), Ipv4Pool::default(), None).map(drop) {
            Err(OpenError::Place(why)) => why,
            other => panic!("{connection}: {other:?}"),
        }
    };
    assert!(refused("no such thing", None).contains("invalid connection string"));
    for elsewhere in [
        "postgresql://fleet:secret@db.example/fleet",
        "host=192.0.2.1 user=fleet",
        "hostaddr=192.0.2.1 host=localhost",
    ] {
        let why = refused(elsewhere, None);
        assert!(why.contains("registry_ca") && !why.contains("secret"), "{why}");
    }
    assert!(refused("host=192.0.2.1 user=fleet", Some("/no/such/file")).contains("/no/such/file"));
    assert!(refused("host=192.0.2.1 user=fleet", Some("/dev/null")).contains("no certificate"));
}
