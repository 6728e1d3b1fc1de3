//! Invitations: made, redeemed once, expired.

use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::OsRng;
use ring::digest::{SHA256, digest};
use rusqlite::{Connection, OptionalExtension, params};
use wire::join_link::{InvitationKind, InvitationSecret, UnixSeconds};

use super::clients::{self, Client};
use super::{InviteError, RedeemError, Registry, RegistryError};
use crate::key::PublicKey;

/// Most invitations that are open at a time.
const MAX_OPEN: usize = 1_000;
/// How long an invitation that is used or expired is remembered, so that a late device hears why it is refused.
const REMEMBERED: u64 = 30 * 86_400;
/// How far this machine's clock may stand before the time an invitation was made.
const CLOCK_SLACK: u64 = 300;

/// An invitation that can still be used, or has expired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invitation {
    /// Name that the device will have.
    pub name: String,
    /// What it is for.
    pub kind: String,
    /// When it was made.
    pub created: UnixSeconds,
    /// When it ends.
    pub expires: UnixSeconds,
    /// Whether its time was over when the registry last looked.
    pub expired: bool,
}

/// A new invitation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invited {
    /// The secret; the registry keeps only its hash.
    pub secret: InvitationSecret,
    /// When it ends.
    pub expires: UnixSeconds,
    /// An older open invitation of that name was replaced.
    pub replaced: bool,
}

/// An invitation that a device has redeemed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Redeemed {
    /// The device, with its lease.
    pub client: Client,
    /// It was let in just now, and not before with the same key.
    pub first_time: bool,
}

struct Row {
    name: String,
    kind: String,
    created: u64,
    expires: u64,
    state: String,
    redeemed_by: Option<Vec<u8>>,
}

impl Registry {
    /// Makes an invitation that ends `lifetime` from `now`.
    ///
    /// An open invitation of the same name stops working: its link may have been lost.
    ///
    /// # Errors
    /// Any [`InviteError`].
    pub fn invite(
        &mut self,
        kind: InvitationKind,
        name: &str,
        lifetime: Duration,
        now: UnixSeconds,
    ) -> Result<Invited, InviteError> {
        let mut secret = InvitationSecret([0; 16]);
        OsRng.try_fill_bytes(&mut secret.0).map_err(InviteError::Randomness)?;
        let expires = UnixSeconds(now.0.saturating_add(lifetime.as_secs()).min(i64::MAX as u64));
        let transaction = self.begin()?;
        tidy(&transaction, now)?;
        if clients::by_name(&transaction, name)?.is_some() {
            return Err(InviteError::NameTaken(name.to_owned()));
        }
        let replaced = withdraw(&transaction, name)?;
        let open: usize = transaction
            .query_row("SELECT count(*) FROM invitations WHERE state = 'open'", [], |row| row.get(0))
            .map_err(RegistryError::from)?;
        if open >= MAX_OPEN {
            return Err(InviteError::TooMany(open));
        }
        transaction
            .execute(
                "INSERT INTO invitations (hash, name, kind, created, expires, state) VALUES (?1, ?2, ?3, ?4, ?5, 'open')",
                params![hash(&secret), name, kind.as_str(), now.0, expires.0],
            )
            .map_err(RegistryError::from)?;
        transaction.commit().map_err(RegistryError::from)?;
        Ok(Invited { secret, expires, replaced })
    }

    /// Lets the device with `key` in as a client of this gateway. The same key may repeat it and gets the same answer.
    ///
    /// A device that is a client already keeps its name and its lease.
    ///
    /// # Errors
    /// Any [`RedeemError`]; [`RedeemError::refusal`] says what to tell the device.
    pub fn redeem(
        &mut self,
        secret: &InvitationSecret,
        key: PublicKey,
        now: UnixSeconds,
    ) -> Result<Redeemed, RedeemError> {
        let (v4, v6) = (self.v4, self.v6);
        let transaction = self.begin()?;
        tidy(&transaction, now)?;
        let outcome = admit(&transaction, secret, key, now, InvitationKind::Gateway).and_then(|name| {
            if let Some(row) = clients::by_key(&transaction, key)? {
                return Ok(Redeemed { client: row.into_client(v4, v6), first_time: false });
            }
            let row = clients::insert(&transaction, &name, key, v4, now)?;
            Ok(Redeemed { client: row.into_client(v4, v6), first_time: true })
        });
        finish(transaction, outcome)
    }

    /// Redeems an invitation of a peer or neighbour and returns the name in it; the caller remembers key and name.
    ///
    /// # Errors
    /// Any [`RedeemError`].
    pub fn redeem_peer(
        &mut self,
        kind: InvitationKind,
        secret: &InvitationSecret,
        key: PublicKey,
        now: UnixSeconds,
    ) -> Result<String, RedeemError> {
        let transaction = self.begin()?;
        tidy(&transaction, now)?;
        let outcome = admit(&transaction, secret, key, now, kind);
        finish(transaction, outcome)
    }

    /// The invitations that are open or have expired unused, by name.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn invitations(&mut self, now: UnixSeconds) -> Result<Vec<Invitation>, RegistryError> {
        let mut statement = self.connection.prepare(
            "SELECT name, kind, created, expires, state = 'expired' OR expires <= ?1 FROM invitations
             WHERE state <> 'redeemed' ORDER BY name, created",
        )?;
        let rows = statement.query_map([now.0], |row| {
            Ok(Invitation {
                name: row.get(0)?,
                kind: row.get(1)?,
                created: UnixSeconds(row.get(2)?),
                expires: UnixSeconds(row.get(3)?),
                expired: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

/// Marks the invitation as redeemed by `key`, and returns the name in it.
fn admit(
    connection: &Connection,
    secret: &InvitationSecret,
    key: PublicKey,
    now: UnixSeconds,
    kind: InvitationKind,
) -> Result<String, RedeemError> {
    let hash = hash(secret);
    let row = connection
        .query_row(
            "SELECT name, kind, created, expires, state, redeemed_by FROM invitations WHERE hash = ?1",
            [&hash],
            |row| {
                Ok(Row {
                    name: row.get(0)?,
                    kind: row.get(1)?,
                    created: row.get(2)?,
                    expires: row.get(3)?,
                    state: row.get(4)?,
                    redeemed_by: row.get(5)?,
                })
            },
        )
        .optional()
        .map_err(RegistryError::from)?
        .ok_or(RedeemError::Unknown)?;
    if row.kind != kind.as_str() {
        return Err(RedeemError::OtherKind(row.kind));
    }
    match row.state.as_str() {
        "redeemed" if row.redeemed_by.as_deref() == Some(&key.0) => return Ok(row.name),
        "redeemed" => return Err(RedeemError::Used { name: row.name }),
        "expired" => return Err(RedeemError::Expired { name: row.name }),
        _ if now.0 >= row.expires => return Err(RedeemError::Expired { name: row.name }),
        _ if now.0.saturating_add(CLOCK_SLACK) < row.created => return Err(RedeemError::ClockBehind),
        _ => {}
    }
    connection
        .execute(
            "UPDATE invitations SET state = 'redeemed', redeemed_by = ?2 WHERE hash = ?1",
            params![hash, key.0],
        )
        .map_err(RegistryError::from)?;
    Ok(row.name)
}

/// Commits what was done; after a refusal, only what [`tidy`] found is kept: `admit` changes nothing when it refuses,
/// and a failure behind it rolls everything back.
fn finish<T>(
    transaction: rusqlite::Transaction<'_>,
    outcome: Result<T, RedeemError>,
) -> Result<T, RedeemError> {
    match outcome {
        Err(error @ (RedeemError::Registry(_) | RedeemError::NoAddressLeft)) => Err(error),
        outcome => {
            transaction.commit().map_err(RegistryError::from)?;
            outcome
        }
    }
}

/// Marks what has expired, once and for all: a clock that is set back must not open it again. Forgets what is long over.
fn tidy(connection: &Connection, now: UnixSeconds) -> Result<(), RegistryError> {
    connection.execute(
        "UPDATE invitations SET state = 'expired' WHERE state = 'open' AND expires <= ?1",
        [now.0],
    )?;
    connection.execute(
        "DELETE FROM invitations WHERE state <> 'open' AND expires < ?1",
        [now.0.saturating_sub(REMEMBERED)],
    )?;
    Ok(())
}

/// Removes the open invitation of that name; whether there was one.
pub(super) fn withdraw(connection: &Connection, name: &str) -> Result<bool, RegistryError> {
    Ok(connection.execute("DELETE FROM invitations WHERE state = 'open' AND name = ?1", [name])? > 0)
}

/// Makes the invitations that a key has redeemed useless to it too: else a revoked device could come back with them.
pub(super) fn bury_invitations(connection: &Connection, key: PublicKey) -> Result<(), RegistryError> {
    connection.execute("UPDATE invitations SET redeemed_by = NULL WHERE redeemed_by = ?1", [key.0])?;
    Ok(())
}

fn hash(secret: &InvitationSecret) -> Vec<u8> {
    digest(&SHA256, &secret.0).as_ref().to_vec()
}
