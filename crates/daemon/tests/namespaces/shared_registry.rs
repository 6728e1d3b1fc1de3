//! A gateway whose clients are kept in a PostgreSQL database, which goes away and comes back.

use anabranch::control::{InviteRequest, Seconds, SessionState};
use identity::{Ipv4Pool, PublicKey, Registry, RegistryPlace, SharedRegistry};

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::database::Database;

fn registry(database: &Database) -> Registry {
    let place = SharedRegistry { connection: database.connection(), certificates: None };
    Registry::create(RegistryPlace::Shared(place), Ipv4Pool::default()).unwrap()
}

fn use_database(bed: &Bed, database: &Database) {
    let config = format!(
        "[gateway]\ndns = []\npublic_addresses = [\"198.51.100.1\"]\nregistry = \"{}\"\n",
        database.connection()
    );
    bed.write_config("gateway", &config);
}

pub fn what_is_carried_without_a_database_is_counted_after_the_next_start() {
    const LENGTH: u64 = 2_000_000;
    let Some(mut database) = Database::start() else { return };
    let bed = Bed::new(false);
    use_database(&bed, &database);
    drop(registry(&database));
    let (gateway, device) = bed.connected();
    database.kill();
    bed.download(SERVER_V4, LENGTH as usize, || {});
    drop(device);
    bed.client("gateway").down().unwrap();
    assert!(gateway.ends("it ends without a database"));
    let kept = bed.directory("gateway").join("uncounted.toml");
    assert!(kept.exists());
    database.run();
    let _gateway = bed.start("gateway");
    let used = || {
        bed.client("gateway").reload().unwrap();
        database.sql("SELECT used FROM anabranch.clients").trim().parse::<u64>().unwrap()
    };
    eventually("it is counted", || used() >= LENGTH);
    eventually("and not kept any longer", || !kept.exists());
    assert!(used() < 3 * LENGTH / 2, "it is counted once");
}

pub fn a_database_that_goes_drops_nobody_and_keeps_nobody_out() {
    let Some(mut database) = Database::start() else { return };
    let bed = Bed::new(false);
    use_database(&bed, &database);
    let mut elsewhere = registry(&database);
    let (_gateway, device) = bed.connected();
    assert_eq!(elsewhere.clients().unwrap()[0].name, "van", "another gateway knows it too");

    // It hangs first, with its connections open, and goes away then.
    database.hang(true);
    bed.download(SERVER_V4, 500_000, || {});
    drop(device);
    let device = bed.start("device");
    bed.wait_until_up();
    database.hang(false);
    database.kill();
    bed.download(SERVER_V4, 500_000, || {});
    drop(device);
    let _device = bed.start("device");
    bed.wait_until_up();
    bed.download(SERVER_V4, 500_000, || {});
    let gateway = bed.client("gateway");
    let invite = || gateway.invite(&InviteRequest { name: "boat".to_owned(), lifetime_seconds: Seconds(60) });
    let refused = invite().unwrap_err().to_string();
    assert!(refused.contains("out of reach"), "{refused}");

    database.run();
    eventually("the database is used again", || invite().is_ok());
    // What is revoked at one gateway holds at the others as soon as they look.
    elsewhere.revoke("van").unwrap();
    eventually("the other gateway ends the session", || {
        gateway.reload().unwrap();
        bed.status().state == SessionState::Refused
    });
    assert_eq!(elsewhere.client(PublicKey([0; 32])).unwrap(), None);
}
