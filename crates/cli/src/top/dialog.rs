//! What stands in front of the lists until it is answered.

use anabranch::control::{FlowReport, Hold, NetworkReport, PinRequest};
use policy::Treatment;
use units::IpPrefix;

use super::order::Order;

/// One question, or the list of keys.
#[derive(Clone, PartialEq, Debug)]
pub enum Dialog {
    /// Which keys there are.
    Keys,
    /// Before something that interrupts.
    Confirm { question: String, order: Order },
    /// To what a flow's destination is to be held.
    Hold(Holding),
    /// The filter of the flows is being typed.
    Filter,
}

/// The ways in which a destination can be held, and the one that is chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Holding {
    pub destination: IpPrefix,
    pub ways: Vec<Way>,
    pub chosen: usize,
}

/// One of them.
#[derive(Clone, PartialEq, Debug)]
pub struct Way {
    pub label: String,
    hold: Hold,
}

impl Holding {
    pub fn of(flow: &FlowReport, networks: &[NetworkReport]) -> Self {
        let over = networks.iter().map(|network| Way {
            label: format!("direct, over {}", network.name),
            hold: Hold { networks: vec![network.name.clone()], treatment: None },
        });
        let through = [Treatment::Bonded, Treatment::Duplicated, Treatment::Protected, Treatment::Direct];
        let through = through.into_iter().map(|treatment| Way {
            label: match treatment {
                Treatment::Direct => "direct, over any network".to_owned(),
                other => other.to_string(),
            },
            hold: Hold { networks: Vec::new(), treatment: Some(treatment) },
        });
        Self {
            destination: IpPrefix::host(flow.destination.ip()),
            ways: over.chain(through).collect(),
            chosen: 0,
        }
    }

    pub fn order(&self) -> Option<Order> {
        let way = self.ways.get(self.chosen)?;
        Some(Order::Pin(PinRequest {
            destination: Some(self.destination),
            domain: None,
            hold: way.hold.clone(),
        }))
    }
}
