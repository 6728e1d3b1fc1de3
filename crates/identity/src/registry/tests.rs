use std::net::Ipv4Addr;
use std::num::NonZeroU16;

use policy::calendar::Day;
use policy::limit::{ClientLimits, Limit, NamedLimit};
use units::{BitRate, Bytes};
use wire::hello::{Name, Refusal};
use wire::request::Sibling;

use super::*;
use crate::{InvitationKind, InvitationSecret, PublicKey, UnixSeconds};

const DAY: Duration = Duration::from_secs(86_400);
const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

fn key(number: u8) -> PublicKey {
    PublicKey([number; 32])
}

fn later(seconds: u64) -> UnixSeconds {
    UnixSeconds(NOW.0 + seconds)
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn registry(pool: &str) -> (tempfile::TempDir, Registry) {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let registry = Registry::create(&state, pool.parse().unwrap()).unwrap();
    (directory, registry)
}

fn invite(registry: &mut Registry, name: &str) -> InvitationSecret {
    registry.invite(InvitationKind::Gateway, name, DAY, NOW).unwrap().secret
}

fn join(registry: &mut Registry, name: &str, number: u8) -> Client {
    let secret = invite(registry, name);
    registry.redeem(&secret, key(number), NOW).unwrap().client
}

fn refusal(registry: &mut Registry, secret: &InvitationSecret, number: u8, now: UnixSeconds) -> Refusal {
    registry.redeem(secret, key(number), now).unwrap_err().refusal()
}

#[test]
fn an_invitation_lets_one_key_in_and_answers_it_again_the_same() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let secret = invite(&mut registry, "van");
    let first = registry.redeem(&secret, key(1), NOW).unwrap();
    assert!(first.first_time);
    assert_eq!(first.client.lease.v4.unwrap().to_string(), "10.86.0.2/16");
    assert!(
        first.client.lease.v6.to_string().starts_with("fd")
            && first.client.lease.v6.to_string().ends_with("::2/64")
    );
    let again = registry.redeem(&secret, key(1), later(1)).unwrap();
    assert_eq!(again, Redeemed { first_time: false, client: first.client });
    assert_eq!(refusal(&mut registry, &secret, 2, NOW), Refusal::InvitationUsed);
    assert_eq!(registry.clients().unwrap().len(), 1);
}

#[test]
fn the_same_key_is_answered_even_after_the_invitation_would_have_expired() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let secret = invite(&mut registry, "van");
    registry.redeem(&secret, key(1), NOW).unwrap();
    assert!(!registry.redeem(&secret, key(1), later(86_401)).unwrap().first_time);
}

#[test]
fn unknown_secrets_and_other_kinds_are_refused() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    assert_eq!(refusal(&mut registry, &InvitationSecret([7; 16]), 1, NOW), Refusal::UnknownInvitation);
    let neighbour = registry.invite(InvitationKind::Neighbour, "anna", DAY, NOW).unwrap().secret;
    assert!(
        matches!(registry.redeem(&neighbour, key(1), NOW), Err(RedeemError::OtherKind(kind)) if kind == "neighbour")
    );
    let redeem = |registry: &mut Registry, number| {
        registry.redeem_peer(InvitationKind::Neighbour, &neighbour, key(number), NOW)
    };
    assert_eq!(redeem(&mut registry, 1).unwrap(), "anna");
    assert_eq!(redeem(&mut registry, 1).unwrap(), "anna");
    assert!(matches!(redeem(&mut registry, 2), Err(RedeemError::Used { .. })));
    assert!(registry.clients().unwrap().is_empty());
}

#[test]
fn what_has_expired_stays_so_when_the_clock_is_set_back() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let secret = invite(&mut registry, "van");
    assert!(!registry.invitations(later(86_399)).unwrap()[0].expired);
    assert!(registry.invitations(later(86_400)).unwrap()[0].expired);
    assert_eq!(refusal(&mut registry, &secret, 1, later(86_400)), Refusal::InvitationExpired);
    assert_eq!(refusal(&mut registry, &secret, 1, NOW), Refusal::InvitationExpired);
    assert!(registry.invitations(NOW).unwrap()[0].expired);
}

#[test]
fn a_clock_before_the_invitation_says_nothing_about_its_end() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let secret = invite(&mut registry, "van");
    assert!(matches!(registry.redeem(&secret, key(1), UnixSeconds(12)), Err(RedeemError::ClockBehind)));
    assert!(registry.redeem(&secret, key(1), UnixSeconds(NOW.0 - 60)).is_ok(), "a little slack");
}

#[test]
fn a_far_future_neither_panics_nor_wraps() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let far = UnixSeconds(i64::MAX as u64);
    let invited = registry.invite(InvitationKind::Gateway, "van", DAY, far).unwrap();
    assert_eq!(invited.expires, far);
    assert_eq!(refusal(&mut registry, &invited.secret, 1, far), Refusal::InvitationExpired);
}

#[test]
fn a_new_invitation_of_a_name_replaces_the_open_one() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let lost = invite(&mut registry, "van");
    let second = registry.invite(InvitationKind::Gateway, "van", DAY, NOW).unwrap();
    assert!(second.replaced);
    assert_eq!(refusal(&mut registry, &lost, 1, NOW), Refusal::UnknownInvitation);
    assert!(registry.redeem(&second.secret, key(1), NOW).is_ok());
}

#[test]
fn duplicate_names_and_keys_lose_nothing() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let van = join(&mut registry, "van", 1);
    let taken = registry.invite(InvitationKind::Gateway, "van", DAY, NOW).unwrap_err();
    assert!(taken.to_string().contains("a client named van has joined already"));
    let other = invite(&mut registry, "boat");
    let again = registry.redeem(&other, key(1), NOW).unwrap();
    assert_eq!(again, Redeemed { client: van.clone(), first_time: false });
    assert_eq!(registry.clients().unwrap(), [van]);
}

#[test]
fn revoked_clients_stay_out_and_their_addresses_are_used_again() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let secret = invite(&mut registry, "van");
    let van = registry.redeem(&secret, key(1), NOW).unwrap().client;
    join(&mut registry, "boat", 2);
    let revoked = registry.revoke("van").unwrap();
    assert_eq!((revoked.client, revoked.invitation), (Some(van.clone()), false));
    assert_eq!(registry.client(key(1)).unwrap(), None);
    assert_eq!(
        refusal(&mut registry, &secret, 1, NOW),
        Refusal::InvitationUsed,
        "the old link is no way back"
    );
    assert_eq!(join(&mut registry, "farm", 3).lease, van.lease);
    assert!(matches!(registry.revoke("van"), Err(RevokeError::Unknown(_))));
    let open = invite(&mut registry, "flat");
    assert!(registry.revoke("flat").unwrap().invitation);
    assert_eq!(refusal(&mut registry, &open, 4, NOW), Refusal::UnknownInvitation);
}

#[test]
fn a_full_pool_refuses_and_keeps_the_invitation() {
    let (_directory, mut registry) = registry("10.0.0.0/29");
    let hosts: Vec<Ipv4Addr> = (1..=5)
        .map(|number| join(&mut registry, &format!("c{number}"), number).lease.v4.unwrap().address)
        .collect();
    assert_eq!(hosts, (2..=6).map(|host| Ipv4Addr::new(10, 0, 0, host)).collect::<Vec<_>>());
    let secret = invite(&mut registry, "late");
    assert_eq!(refusal(&mut registry, &secret, 9, NOW), Refusal::NoAddressLeft);
    registry.revoke("c3").unwrap();
    assert_eq!(registry.redeem(&secret, key(9), NOW).unwrap().client.lease.v4.unwrap().address, hosts[2]);
}

#[test]
fn open_invitations_are_bounded() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    registry.store.sqlite().execute_batch("PRAGMA synchronous = OFF").unwrap();
    for number in 0..1_000 {
        invite(&mut registry, &format!("c{number}"));
    }
    assert!(matches!(
        registry.invite(InvitationKind::Gateway, "more", DAY, NOW),
        Err(InviteError::TooMany(1_000))
    ));
    assert!(
        registry.invite(InvitationKind::Gateway, "more", DAY, later(86_400)).is_ok(),
        "expired ones do not count"
    );
}

#[test]
fn old_invitations_are_forgotten() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    join(&mut registry, "van", 1);
    invite(&mut registry, "boat");
    invite(&mut registry, "later");
    registry.invite(InvitationKind::Gateway, "new", DAY, later(40 * 86_400)).unwrap();
    let count: u32 =
        registry.store.sqlite().query_row("SELECT count(*) FROM invitations", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
    assert_eq!(registry.clients().unwrap().len(), 1);
}

#[test]
fn last_seen_is_kept() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    join(&mut registry, "van", 1);
    assert_eq!(registry.client(key(1)).unwrap().unwrap().last_seen, None);
    registry.seen(key(1), later(5)).unwrap();
    registry.seen(key(2), later(5)).unwrap();
    assert_eq!(registry.client(key(1)).unwrap().unwrap().last_seen, Some(later(5)));
}

#[test]
fn ports_lead_to_one_client() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let forward = |registry: &mut Registry, client, number, to| {
        registry.forward(client, Protocol::Tcp, port(number), port(to))
    };
    assert!(matches!(forward(&mut registry, None, 80, 80), Err(ForwardError::WhichClient(0))));
    join(&mut registry, "van", 1);
    assert_eq!(forward(&mut registry, None, 80, 8_080).unwrap().client, "van");
    join(&mut registry, "boat", 2);
    assert!(matches!(forward(&mut registry, None, 81, 81), Err(ForwardError::WhichClient(2))));
    assert!(matches!(forward(&mut registry, Some("farm"), 81, 81), Err(ForwardError::UnknownClient(_))));
    assert!(
        matches!(forward(&mut registry, Some("boat"), 80, 80), Err(ForwardError::PortTaken { client, .. }) if client == "van")
    );
    assert_eq!(forward(&mut registry, Some("van"), 80, 80).unwrap().device_port, port(80));
    registry.forward(Some("boat"), Protocol::Udp, port(80), port(80)).unwrap();
    assert_eq!(registry.forwards().unwrap().len(), 2);
    assert_eq!(registry.stop_forward(Protocol::Udp, port(80)).unwrap().client, "boat");
    assert!(matches!(registry.stop_forward(Protocol::Udp, port(80)), Err(ForwardError::NotForwarded { .. })));
    registry.revoke("van").unwrap();
    assert!(registry.forwards().unwrap().is_empty(), "a client's ports go with it");
}

#[test]
fn limits_and_what_was_used_are_kept() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    join(&mut registry, "van", 1);
    join(&mut registry, "boat", 2);
    let van = registry.limit("van", Some(Limit::At(BitRate(5))), None).unwrap();
    assert_eq!(van.limits, ClientLimits { rate: Limit::At(BitRate(5)), quota: Limit::default() });
    let none = Limit::Named(NamedLimit::None);
    let van = registry.limit("van", Some(Limit::default()), Some(none)).unwrap();
    assert_eq!(van.limits, ClientLimits { rate: Limit::default(), quota: none });
    assert!(matches!(registry.limit("farm", None, None), Err(LimitError::Unknown(_))));

    let mut count = |month, bytes: &[(u8, u64)]| {
        let bytes = bytes.iter().map(|(number, bytes)| (key(*number), Bytes(*bytes))).collect();
        let clients = registry.count(&Usage { month: Day(month), bytes }).unwrap();
        clients.iter().map(|client| client.used.in_month(Day(month)).0).collect::<Vec<_>>()
    };
    assert_eq!(count(31, &[(1, 100), (2, 7), (9, 1)]), [7, 100], "boat, van; nobody is number 9");
    assert_eq!(count(31, &[(1, 50)]), [7, 150]);
    assert_eq!(count(62, &[(1, 1)]), [0, 1], "a month begins with nothing");
    assert_eq!(count(62, &[]), [0, 1]);
}

#[test]
fn a_full_disk_is_named_and_changes_nothing() {
    let (_directory, mut registry) = registry("10.86.0.0/16");
    let van = join(&mut registry, "van", 1);
    let secret = invite(&mut registry, "boat");
    let pages: u32 =
        registry.store.sqlite().pragma_query_value(None, "page_count", |row| row.get(0)).unwrap();
    registry.store.sqlite().pragma_update(None, "max_page_count", pages).unwrap();
    let full =
        (0..).map(|number| registry.invite(InvitationKind::Gateway, &format!("{number:0>60}"), DAY, NOW));
    let error = full.into_iter().find_map(Result::err).unwrap();
    assert!(matches!(error, InviteError::Registry(RegistryError::DiskFull)), "{error}");
    assert_eq!(registry.clients().unwrap(), [van]);
    registry.store.sqlite().pragma_update(None, "max_page_count", 10 * pages).unwrap();
    assert!(registry.redeem(&secret, key(2), NOW).is_ok());
}

#[test]
fn it_survives_closing_and_a_change_of_pools() {
    let (directory, mut registry) = registry("10.86.0.0/16");
    let van = join(&mut registry, "van", 1);
    let v6 = registry.pools().v6;
    drop(registry);
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let mut again = Registry::create(&state, Ipv4Pool::default()).unwrap();
    assert_eq!((again.pools().v6, again.clients().unwrap()), (v6, vec![van]));
    drop(again);
    let mut moved =
        Registry::open(&state, "192.168.4.0/24".parse().unwrap(), Some("fd00::/64".parse().unwrap()))
            .unwrap();
    let lease = moved.clients().unwrap()[0].lease;
    assert_eq!(
        (lease.v4.unwrap().to_string(), lease.v6.to_string()),
        ("192.168.4.2/24".into(), "fd00::2/64".into())
    );
}

#[test]
fn missing_newer_and_damaged_files_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let open = || Registry::open(&state, Ipv4Pool::default(), None);
    assert!(matches!(open(), Err(OpenError::Missing(_))));
    let registry = Registry::create(&state, Ipv4Pool::default()).unwrap();
    registry.store.sqlite().pragma_update(None, "user_version", 99).unwrap();
    drop(registry);
    assert!(matches!(open(), Err(OpenError::Newer { found: 99, known: schema::NEWEST })));
    std::fs::write(state.file(FILE_NAME), "no database at all, whatever its name says".repeat(100)).unwrap();
    assert!(matches!(open(), Err(OpenError::Registry(RegistryError::Damaged))));
}

#[test]
fn an_older_file_is_looked_at_without_a_change_and_updated_when_it_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let registry = Registry::create(&state, Ipv4Pool::default()).unwrap();
    let v6 = registry.pools().v6;
    let back = "DROP TABLE gateways; ALTER TABLE clients DROP COLUMN rate; ALTER TABLE clients DROP COLUMN quota;
                ALTER TABLE clients DROP COLUMN used; ALTER TABLE clients DROP COLUMN month; PRAGMA user_version = 1";
    registry.store.sqlite().execute_batch(back).unwrap();
    drop(registry);
    let bytes = || std::fs::read(state.file(FILE_NAME)).unwrap();
    let before = bytes();
    let inspect = || Registry::inspect(&state, Ipv4Pool::default(), None);
    assert_eq!(inspect().unwrap(), Pools { v4: Ipv4Pool::default(), v6 });
    assert!(bytes() == before, "it was changed");
    let registry = Registry::open(&state, Ipv4Pool::default(), None).unwrap();
    assert!(bytes() != before);
    registry.store.sqlite().pragma_update(None, "user_version", 99).unwrap();
    assert!(matches!(inspect(), Err(OpenError::Newer { found: 99, .. })));
}

fn sibling(number: u8, address: &str) -> Sibling {
    Sibling {
        public_key: [number; 32],
        name: Name::new(&format!("gateway {number}")).unwrap(),
        tcp_port: None,
        addresses: std::iter::once(address.parse().unwrap()).collect(),
    }
}

#[test]
fn gateways_announce_themselves_and_are_forgotten_after_a_day() {
    let (_directory, mut registry) = registry("10.86.0.0/24");
    let [one, two] = [sibling(1, "192.0.2.1:4600"), sibling(2, "gw.example.org:443")];
    assert_eq!(registry.announce(key(1), Some(&one), NOW).unwrap(), []);
    assert_eq!(registry.announce(key(2), Some(&two), NOW).unwrap(), std::slice::from_ref(&one));
    let moved = Sibling { tcp_port: NonZeroU16::new(443), ..sibling(2, "192.0.2.2:4600") };
    assert_eq!(registry.announce(key(2), Some(&moved), later(60)).unwrap(), std::slice::from_ref(&one));
    assert_eq!(registry.announce(key(1), Some(&one), later(60)).unwrap(), std::slice::from_ref(&moved));
    // The second says nothing for a day, the third has no address to tell.
    assert_eq!(registry.announce(key(3), None, later(86_460)).unwrap(), [one.clone(), moved]);
    assert_eq!(registry.announce(key(1), Some(&one), later(86_461)).unwrap(), []);
    assert_eq!(registry.announce(key(1), None, later(86_462)).unwrap(), []);
    assert_eq!(registry.announce(key(2), None, later(86_462)).unwrap(), [], "withdrawn");
}
