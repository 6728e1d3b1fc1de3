//! What the networks of one channel ask of its turn together.

use std::time::Duration;

use units::Frequency;

/// What one network asks for.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    /// At least 1.
    pub weight: u16,
    /// Where it is; `None`: nowhere.
    pub channel: Option<Frequency>,
    /// Longest time away that does not overflow what keeps frames for us meanwhile.
    pub most_absence: Option<Duration>,
    /// Longest time that other channels should take where that costs nothing else.
    pub gentle_absence: Option<Duration>,
    /// Its slot may not be shortened for that.
    pub needs_whole: bool,
    /// Others of its channel carry its data.
    pub stands_by: bool,
}

impl Asker {
    pub fn new(weight: u16) -> Self {
        Self {
            weight,
            channel: None,
            most_absence: None,
            gentle_absence: None,
            needs_whole: false,
            stands_by: false,
        }
    }
}

/// What a turn is asked for.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Wish {
    pub weight: u32,
    /// Longest time away that does not overflow what keeps frames for us meanwhile.
    pub most_absence: Option<Duration>,
    /// Longest time that other channels should take where that costs nothing else.
    pub gentle_absence: Option<Duration>,
    /// Its slot may be shortened for that.
    pub is_divisible: bool,
}

impl Wish {
    pub fn of_listening(weight: u16) -> Self {
        Self { weight: weight.max(1).into(), most_absence: None, gentle_absence: None, is_divisible: false }
    }
}

/// The wish of a channel: the sum of its networks' weights, so that each brings the time along that its user gave it, and the strictest of their
/// bounds. Who stands by brings no time, unless all do. `None` without networks.
pub(super) fn wish<'a>(askers: impl Iterator<Item = &'a Asker> + Clone) -> Option<Wish> {
    let weight =
        |askers: &mut dyn Iterator<Item = &'a Asker>| askers.map(|asker| u32::from(asker.weight)).sum();
    let carrying: u32 = weight(&mut askers.clone().filter(|asker| !asker.stands_by));
    let all: u32 = weight(&mut askers.clone());
    (all > 0).then(|| Wish {
        weight: if carrying > 0 { carrying } else { all },
        most_absence: askers.clone().filter_map(|asker| asker.most_absence).min(),
        gentle_absence: askers.clone().filter_map(|asker| asker.gentle_absence).min(),
        is_divisible: askers.clone().all(|asker| !asker.needs_whole),
    })
}
