//! Flows, rules and programs that are held to networks.

use std::net::{IpAddr, SocketAddr};

use hyper::Method;
use policy::Treatment;
use serde::{Deserialize, Serialize};
use units::{BitRate, Bytes, IpPrefix};

use super::client::escape;
use super::{BlockingClient, Client, ClientError, Fraction, Micros};

/// The flows of this machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flows {
    /// Those with the highest rate first; at most [`Flows::MOST`].
    pub flows: Vec<FlowReport>,
    /// How many more there are.
    pub left_out: usize,
    /// What is missing from the list and why, for people.
    pub remarks: Vec<String>,
}

impl Flows {
    /// Flows in one answer.
    pub const MOST: usize = 4_000;
}

/// One flow.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlowReport {
    /// `tcp`, `udp`, `icmp`, `ipv6-icmp` or `protocol N`.
    pub protocol: String,
    /// Who began it; port 0 where there are none.
    pub source: SocketAddr,
    /// Where it goes; port 0 where there are none.
    pub destination: SocketAddr,
    /// Name of the program, if it runs here and is known.
    pub program: Option<String>,
    /// Its process.
    pub process: Option<u32>,
    /// Number of the user whose flow it is.
    pub user: Option<u32>,
    /// How it is carried.
    pub treatment: Treatment,
    /// The network that carries it; `None` if the bond does.
    pub network: Option<String>,
    /// What was sent, if the kernel counts.
    pub sent: Option<Bytes>,
    /// What was received, if the kernel counts.
    pub received: Option<Bytes>,
    /// Rate out, bits per second.
    pub sending: Option<BitRate>,
    /// Rate in, bits per second.
    pub receiving: Option<BitRate>,
    /// Smoothed round-trip time, for TCP of this machine's programs.
    #[serde(rename = "rtt_us")]
    pub rtt: Option<Micros>,
    /// Why it is carried so.
    pub why: String,
}

/// A flow that might begin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// Where it would go.
    pub destination: IpAddr,
    /// The name that was resolved to it, if there was one.
    #[serde(default)]
    pub domain: Option<String>,
    /// Destination port.
    pub port: u16,
    /// UDP, else TCP.
    #[serde(default)]
    pub udp: bool,
    /// Differentiated services code point of its packets, 0 to 63.
    #[serde(default)]
    pub dscp: u8,
}

/// What would become of it. Nothing was sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Explained {
    /// What each rule says of it, in order, a line each.
    pub rules: Vec<String>,
    /// Name of the rule that decides; `None` if none matches.
    pub rule: Option<String>,
    /// How it would be carried.
    pub treatment: Treatment,
    /// The networks, each with the part of such flows that it gets.
    pub networks: Vec<NetworkPart>,
    /// A sentence for people.
    pub outcome: String,
}

impl Explained {
    /// Name of the network that gets the largest part; `None` if none gets any.
    pub fn preferred(&self) -> Option<&str> {
        self.largest_part(|_| true)
    }

    /// Name of the network for the first subflow of an MPTCP connection: as [`preferred`](Self::preferred), among those that let MPTCP through if there
    /// are any.
    pub fn preferred_for_mptcp(&self) -> Option<&str> {
        self.largest_part(|network| !network.no_mptcp).or_else(|| self.preferred())
    }

    fn largest_part(&self, may: impl Fn(&NetworkPart) -> bool) -> Option<&str> {
        let used = self.networks.iter().filter(|network| network.share.0 > 0.0 && may(network));
        used.max_by(|one, other| one.share.0.total_cmp(&other.share.0)).map(|network| network.name.as_str())
    }
}

/// One network's part of flows.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetworkPart {
    /// Its name.
    pub name: String,
    /// Part of the flows, 0 to 1.
    pub share: Fraction,
    /// Why.
    pub why: String,
    /// Something on the way takes MPTCP out of connections.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_mptcp: bool,
}

/// What a flow is held to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Hold {
    /// These networks and no other; empty for any.
    #[serde(default)]
    pub networks: Vec<String>,
    /// This treatment; `None` for direct if there are networks.
    #[serde(default)]
    pub treatment: Option<Treatment>,
}

/// Where the calling process was put.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Running {
    /// Its control group; what it starts is in it too.
    pub cgroup: String,
}

/// A rule to add until the daemon ends. Of users who do not control the daemon it holds for their own flows only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PinRequest {
    /// For flows to these addresses.
    #[serde(default)]
    pub destination: Option<IpPrefix>,
    /// For flows to the addresses that this name has now.
    #[serde(default)]
    pub domain: Option<String>,
    /// What they are held to.
    pub hold: Hold,
}

/// Where a rule comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RuleOrigin {
    /// `anabranch run`; goes with the program.
    Run,
    /// `anabranch pin`; goes with the daemon.
    Pin,
    /// The configuration.
    Configured,
}

/// One rule. The first that matches a flow decides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RuleReport {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    pub origin: RuleOrigin,
    /// For which flows.
    pub matches: String,
    /// What becomes of them.
    pub decides: String,
    /// Number of the user who made it at run time.
    pub user: Option<u32>,
    /// Why it does not do all that it says, if so.
    pub remark: Option<String>,
}

impl Client {
    /// The flows that go on now; of a user who does not control the daemon, the own ones.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn flows(&self) -> Result<Flows, ClientError> {
        self.get("/v1/flows").await
    }

    /// What would become of a flow.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn explain(&self, request: &ExplainRequest) -> Result<Explained, ClientError> {
        self.send(Method::POST, "/v1/explain", Some(request)).await
    }

    /// Holds the calling process, and all that it starts, to networks or a treatment from now on.
    ///
    /// # Errors
    /// Any [`ClientError`]; `Unavailable` where the machine has no control groups of version 2.
    pub async fn run(&self, hold: &Hold) -> Result<Running, ClientError> {
        self.send(Method::POST, "/v1/run", Some(hold)).await
    }

    /// All rules, in the order in which they are tried.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn rules(&self) -> Result<Vec<RuleReport>, ClientError> {
        self.get("/v1/rules").await
    }

    /// Adds a rule in front of all others.
    ///
    /// # Errors
    /// Any [`ClientError`]; `Conflict` if there are too many.
    pub async fn pin(&self, request: &PinRequest) -> Result<RuleReport, ClientError> {
        self.send(Method::POST, "/v1/rules", Some(request)).await
    }

    /// Removes a rule that was added.
    ///
    /// # Errors
    /// Any [`ClientError`]; `NotFound` if there is none of that name, or it is another user's.
    pub async fn unpin(&self, name: &str) -> Result<RuleReport, ClientError> {
        self.send(Method::DELETE, &format!("/v1/rules/{}", escape(name)), None::<&()>).await
    }
}

impl BlockingClient {
    /// See [`Client::flows`].
    ///
    /// # Errors
    /// As there.
    pub fn flows(&self) -> Result<Flows, ClientError> {
        self.wait(self.client.flows())
    }

    /// See [`Client::explain`].
    ///
    /// # Errors
    /// As there.
    pub fn explain(&self, request: &ExplainRequest) -> Result<Explained, ClientError> {
        self.wait(self.client.explain(request))
    }

    /// See [`Client::run`].
    ///
    /// # Errors
    /// As there.
    pub fn run(&self, hold: &Hold) -> Result<Running, ClientError> {
        self.wait(self.client.run(hold))
    }

    /// See [`Client::rules`].
    ///
    /// # Errors
    /// As there.
    pub fn rules(&self) -> Result<Vec<RuleReport>, ClientError> {
        self.wait(self.client.rules())
    }

    /// See [`Client::pin`].
    ///
    /// # Errors
    /// As there.
    pub fn pin(&self, request: &PinRequest) -> Result<RuleReport, ClientError> {
        self.wait(self.client.pin(request))
    }

    /// See [`Client::unpin`].
    ///
    /// # Errors
    /// As there.
    pub fn unpin(&self, name: &str) -> Result<RuleReport, ClientError> {
        self.wait(self.client.unpin(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mptcp_begins_where_it_gets_through_if_there_is_such_a_network() {
        let part = |name: &str, share, no_mptcp| NetworkPart {
            name: name.to_owned(),
            share: Fraction(share),
            why: String::new(),
            no_mptcp,
        };
        let explained = |networks| Explained {
            rules: Vec::new(),
            rule: None,
            treatment: Treatment::Direct,
            networks,
            outcome: String::new(),
        };
        let both = explained(vec![part("lte", 0.7, true), part("wlan", 0.3, false), part("usb", 0.0, false)]);
        assert_eq!((both.preferred(), both.preferred_for_mptcp()), (Some("lte"), Some("wlan")));
        let alone = explained(vec![part("lte", 1.0, true), part("usb", 0.0, false)]);
        assert_eq!(alone.preferred_for_mptcp(), Some("lte"), "as plain TCP");
        assert_eq!(explained(Vec::new()).preferred_for_mptcp(), None);
    }
}
