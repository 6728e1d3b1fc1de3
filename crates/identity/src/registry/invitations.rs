//! Invitations: made, redeemed once, expired.

use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::OsRng;
use ring::digest::{Digest, SHA256, digest};
use wire::join_link::{InvitationKind, InvitationSecret, UnixSeconds};

use super::clients::{self, Client};
use super::store::{self, Transaction};
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
    redeemed_by: Option<[u8; 32]>,
}

impl Row {
    fn read(row: &store::Row) -> Result<Self, RegistryError> {
        Ok(Self {
            name: row.text(0)?,
            kind: row.text(1)?,
            created: row.number(2)?,
            expires: row.number(3)?,
            state: row.text(4)?,
            redeemed_by: row.key_or_null(5)?,
        })
    }
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
        let mut transaction = self.begin()?;
        tidy(&mut transaction, now)?;
        if clients::by_name(&mut transaction, name)?.is_some() {
            return Err(InviteError::NameTaken(name.to_owned()));
        }
        let replaced = withdraw(&mut transaction, name)?;
        let open = transaction.row("SELECT count(*) FROM invitations WHERE state = 'open'", &[])?;
        let open: usize = open.map_or(Ok(0), |row| row.number(0))?;
        if open >= MAX_OPEN {
            return Err(InviteError::TooMany(open));
        }
        transaction.execute(
            "INSERT INTO invitations (hash, name, kind, created, expires, state) VALUES ($1, $2, $3, $4, $5, 'open')",
            &[hash(&secret).as_ref().into(), name.into(), kind.as_str().into(), now.0.into(), expires.0.into()],
        )?;
        transaction.commit()?;
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
        let mut transaction = self.begin()?;
        tidy(&mut transaction, now)?;
        let outcome = admit(&mut transaction, secret, key, now, InvitationKind::Gateway).and_then(|name| {
            if let Some(row) = clients::by_key(&mut transaction, key)? {
                return Ok(Redeemed { client: row.into_client(v4, v6), first_time: false });
            }
            let row = clients::insert(&mut transaction, &name, key, v4, now)?;
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
        let mut transaction = self.begin()?;
        tidy(&mut transaction, now)?;
        let outcome = admit(&mut transaction, secret, key, now, kind);
        finish(transaction, outcome)
    }

    /// The invitations that are open or have expired unused, by name.
    ///
    /// # Errors
    /// Any [`RegistryError`].
    pub fn invitations(&mut self, now: UnixSeconds) -> Result<Vec<Invitation>, RegistryError> {
        let rows = self.read()?.rows(
            "SELECT name, kind, created, expires, state FROM invitations
             WHERE state <> 'redeemed' ORDER BY name, created",
            &[],
        )?;
        let read = |row: &store::Row| {
            let expires = UnixSeconds(row.number(3)?);
            Ok(Invitation {
                name: row.text(0)?,
                kind: row.text(1)?,
                created: UnixSeconds(row.number(2)?),
                expires,
                expired: row.text(4)? == "expired" || expires <= now,
            })
        };
        rows.iter().map(read).collect()
    }
}

/// Marks the invitation as redeemed by `key`, and returns the name in it.
fn admit(
    transaction: &mut Transaction<'_>,
    secret: &InvitationSecret,
    key: PublicKey,
    now: UnixSeconds,
    kind: InvitationKind,
) -> Result<String, RedeemError> {
    let hash = hash(secret);
    let found = transaction.row(
        "SELECT name, kind, created, expires, state, redeemed_by FROM invitations WHERE hash = $1",
        &[hash.as_ref().into()],
    )?;
    let row = found.as_ref().map(Row::read).transpose()?.ok_or(RedeemError::Unknown)?;
    if row.kind != kind.as_str() {
        return Err(RedeemError::OtherKind(row.kind));
    }
    match row.state.as_str() {
        "redeemed" if row.redeemed_by == Some(key.0) => return Ok(row.name),
        "redeemed" => return Err(RedeemError::Used { name: row.name }),
        "expired" => return Err(RedeemError::Expired { name: row.name }),
        _ if now.0 >= row.expires => return Err(RedeemError::Expired { name: row.name }),
        _ if now.0.saturating_add(CLOCK_SLACK) < row.created => return Err(RedeemError::ClockBehind),
        _ => {}
    }
    transaction.execute(
        "UPDATE invitations SET state = 'redeemed', redeemed_by = $2 WHERE hash = $1",
        &[hash.as_ref().into(), key.0.into()],
    )?;
    Ok(row.name)
}

/// Commits what was done; after a refusal, only what [`tidy`] found is kept: `admit` changes nothing when it refuses,
/// and a failure behind it rolls everything back.
fn finish<T>(transaction: Transaction<'_>, outcome: Result<T, RedeemError>) -> Result<T, RedeemError> {
    match outcome {
        Err(error @ (RedeemError::Registry(_) | RedeemError::NoAddressLeft)) => Err(error),
        outcome => {
            transaction.commit()?;
            outcome
        }
    }
}

/// Marks what has expired, once and for all: a clock that is set back must not open it again. Forgets what is long over.
fn tidy(transaction: &mut Transaction<'_>, now: UnixSeconds) -> Result<(), RegistryError> {
    transaction.execute(
        "UPDATE invitations SET state = 'expired' WHERE state = 'open' AND expires <= $1",
        &[now.0.into()],
    )?;
    transaction.execute(
        "DELETE FROM invitations WHERE state <> 'open' AND expires < $1",
        &[now.0.saturating_sub(REMEMBERED).into()],
    )?;
    Ok(())
}

/// Removes the open invitation of that name; whether there was one.
pub(super) fn withdraw(transaction: &mut Transaction<'_>, name: &str) -> Result<bool, RegistryError> {
    let statement = "DELETE FROM invitations WHERE state = 'open' AND name = $1";
    Ok(transaction.execute(statement, &[name.into()])? > 0)
}

/// Makes the invitations that a key has redeemed useless to it too: else a revoked device could come back with them.
pub(super) fn bury_invitations(
    transaction: &mut Transaction<'_>,
    key: PublicKey,
) -> Result<(), RegistryError> {
    let statement = "UPDATE invitations SET redeemed_by = NULL WHERE redeemed_by = $1";
    transaction.execute(statement, &[key.0.into()])?;
    Ok(())
}

fn hash(secret: &InvitationSecret) -> Digest {
    digest(&SHA256, &secret.0)
}
