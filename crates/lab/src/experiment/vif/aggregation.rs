//! VIF tables 5, 6 and 7: one flow and many, over several networks, of which one may be busy with other people's traffic.
//!
//! Flows are uploads, as in the paper. One flow leaves by one network in direct mode, so it is measured as often as there are
//! networks and the mean taken; with a gateway it is bonded.

use super::{FAST_MBPS, MANY, ROUND_TRIP_MS, SCALE, SLOW_MBPS, behind_point, describe_air, id, old_rates};
use crate::experiment::direct_laboratory::{Laboratory, Links};
use crate::experiment::record::RATE_SCALE;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::vm::air::{Air, Radios};
use crate::vm::direct::{Answers, DirectJob, OTHERS, Way, others_on};
use crate::vm::topology::SERVER_ADDRESS;
use sim::NetworkSpec;

/// Length of each measurement, seconds. The paper took 100 s; on cables ten seconds of one flow beside another one vary by a half. On the air,
/// where each frame costs the emulated processor work, more than ten take hours.
fn seconds(links: Links) -> u32 {
    if links == Links::Air { 10 } else { 30 }
}

/// One of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Table {
    TwoIdle,
    OneSaturated,
    WorstCase,
}

pub(super) fn experiments(links: Links) -> Vec<Experiment> {
    [Table::TwoIdle, Table::OneSaturated, Table::WorstCase].map(|table| experiment(table, links)).into()
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::TwoIdle => "table5-twoaps",
            Self::OneSaturated => "table6-saturated",
            Self::WorstCase => "table7-worstcase",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::TwoIdle => "one flow and many over two networks, against one of them",
            Self::OneSaturated => "one of two networks is saturated by others",
            Self::WorstCase => {
                "three interfaces, one of them slow, all behind one router or access point that others saturate"
            }
        }
    }

    fn paper(self) -> &'static str {
        match self {
            Self::TwoIdle => {
                "table 5: one flow 23.63 Mbit/s (0.995 of table 3's 23.74 over one interface), many 42.62 (1.79; 1.48 of its own row RAW)"
            }
            Self::OneSaturated => {
                "table 6: 11.71 Mbit/s over the saturated network alone; one flow 19.13 (1.63 times), many 33.58 (2.87 times)"
            }
            Self::WorstCase => {
                "table 7: 11.71 Mbit/s over one interface; one flow 9.92 (0.85 times), many 14.76 (1.26 times)"
            }
        }
    }

    /// The paper's one flow and many flows over its one interface.
    fn paper_figures(self) -> (f64, f64) {
        match self {
            Self::TwoIdle => (23.627 / 23.743, 42.615 / 23.743),
            Self::OneSaturated => (19.125 / 11.713, 33.575 / 11.713),
            Self::WorstCase => (9.915 / 11.713, 14.756 / 11.713),
        }
    }

    fn goals(self) -> Vec<Goal> {
        match self {
            Self::TwoIdle => vec![
                Goal::at_least("one.bonded_over_raw", 1.90),
                Goal::at_least("many.direct_over_raw", 1.95),
            ],
            Self::OneSaturated => {
                vec![Goal::at_least("one.bonded_over_raw", 1.63), Goal::at_least("many.direct_over_raw", 2.9)]
            }
            Self::WorstCase => vec![
                Goal::at_least("one.bonded_over_best_single", 1.0),
                Goal::at_least("many.direct_over_best_single", 1.0),
                Goal::at_least("many.direct_over_raw", 1.26),
            ],
        }
    }

    /// The device's interfaces and the paper's rates of them.
    fn interfaces(self) -> &'static [(&'static str, f64)] {
        match self {
            Self::TwoIdle | Self::OneSaturated => &[("a", FAST_MBPS), ("b", FAST_MBPS)],
            Self::WorstCase => &[("a", FAST_MBPS), ("b", FAST_MBPS), ("c", SLOW_MBPS)],
        }
    }

    /// On cables at the paper's rates.
    fn networks(self, links: Links) -> Vec<NetworkSpec> {
        let interfaces = self.interfaces().iter();
        match (self, links) {
            (_, Links::Wired) => {
                interfaces.map(|&(name, mbps)| NetworkSpec::symmetric(name, mbps, ROUND_TRIP_MS)).collect()
            }
            (Self::WorstCase, Links::Air) => vec![behind_point("a")],
            (_, Links::Air) => interfaces.map(|&(name, _)| behind_point(name)).collect(),
        }
    }

    /// Access points and cards. Of the worst case: the access point is radio 0, the cards 1 to 3, of which the third is old.
    fn air(self) -> Air {
        let others = vec![(OTHERS, 1)];
        match self {
            Self::TwoIdle => Air::cards(&[1, 11]),
            Self::OneSaturated => Air { others, ..Air::cards(&[1, 11]) },
            Self::WorstCase => Air {
                radios: Radios::Cards { more: vec![("b", 0), ("c", 0)] },
                others,
                links: vec![old_rates([0, 3])],
                ..Air::cards(&[1])
            },
        }
    }

    /// What is built beside the networks.
    fn set_up(self, links: Links, networks: &[NetworkSpec]) -> String {
        match (self, networks.first()) {
            (Self::OneSaturated | Self::WorstCase, Some(saturated)) if links == Links::Air => {
                format!("associate {OTHERS} wlan0 {} || fail 'the others'\n", saturated.name)
            }
            (Self::OneSaturated, Some(saturated)) => others_on(saturated, 1),
            // The router that all share passes on as much as one fast network, with a queue as theirs.
            (Self::WorstCase, _) => format!(
                "ip netns add others; prepare others
join core to-others others net 10.67.0.1 10.67.0.2
ip -n others route add default via 10.67.0.1
in_namespace core tc qdisc add dev server root handle 1: tbf rate {}bit burst 1600 limit {} || fail 'the shared router'
",
                (FAST_MBPS * SCALE * 1e6) as u64,
                (FAST_MBPS * SCALE * 1e6 / 8.0 * 0.06) as u64,
            ),
            _ => String::new(),
        }
    }
}

fn experiment(table: Table, links: Links) -> Experiment {
    let mut spec = toml::Table::new();
    match links {
        Links::Wired => {
            let networks = table.networks(links);
            let networks = networks.iter().map(|network| {
                format!("{}: {:?}, round trip {ROUND_TRIP_MS} ms", network.name, network.up.capacity)
            });
            spec.insert("networks".into(), networks.collect::<Vec<_>>().into());
            spec.insert("rate_scale_vm".into(), SCALE.into());
        }
        Links::Air => describe_air(&mut spec, table.interfaces()),
    }
    spec.insert("traffic".into(), "tcp-cubic, uploads".into());
    spec.insert("seconds".into(), i64::from(seconds(links)).into());
    spec.insert("many".into(), i64::from(MANY).into());
    if table != Table::TwoIdle {
        let place = match (table, links) {
            (Table::WorstCase, Links::Wired) => "the router that all networks share",
            (Table::WorstCase, Links::Air) => "the one access point that all are at",
            _ => "network a",
        };
        spec.insert("others".into(), format!("one tcp-cubic upload without end through {place}").into());
    }
    let bar = |label: &str, metric: &str| (label.to_owned(), metric.to_owned());
    let bars = vec![
        BarGroup {
            label: "one flow".into(),
            bars: vec![
                bar("paper", "paper.one_over_raw"),
                bar("direct", "one.direct_over_raw"),
                bar("bonded", "one.bonded_over_raw"),
            ],
        },
        BarGroup {
            label: "many flows".into(),
            bars: vec![
                bar("paper", "paper.many_over_raw"),
                bar("direct", "many.direct_over_raw"),
                bar("bonded", "many.bonded_over_raw"),
                bar("best one interface", "many.best_single_over_raw"),
            ],
        },
    ];
    Experiment {
        id: id(&links.of(table.name())),
        title: table.title().to_owned(),
        spec,
        paper: Some(table.paper().to_owned()),
        goals: table.goals(),
        beds: vec![Bed::Vm],
        bars,
        unit: "times one flow over one interface",
        axes: Axes::default(),
        runner: Box::new(move |_, seed| run(table, links, seed)),
    }
}

fn run(table: Table, links: Links, seed: u64) -> anyhow::Result<Report> {
    let (interfaces, seconds) = (table.interfaces(), seconds(links));
    let mut networks = table.networks(links);
    if links == Links::Wired {
        networks = networks.into_iter().map(|network| network.slowed((1.0 / SCALE) as u32)).collect();
    }
    let mut laboratory = Laboratory::open(seed)?;
    laboratory.put(RATE_SCALE, links.scale());
    let (paper_one, paper_many) = table.paper_figures();
    laboratory.put("paper.one_over_raw", paper_one);
    laboratory.put("paper.many_over_raw", paper_many);
    let job = |way, script: String| DirectJob {
        air: (links == Links::Air).then(|| table.air()),
        set_up: table.set_up(links, &networks),
        ..DirectJob::new(networks.clone(), way, saturating(table) + &script)
    };
    let singles: String = interfaces
        .iter()
        .map(|(interface, _)| measurements(interface, &format!(" --interface {interface}"), 1, seconds))
        .collect();
    let plain = laboratory.run("plain", job(Way::Plain, singles))?;
    let mut best = [0.0, 0.0];
    for (interface, _) in interfaces {
        for (kind, best) in ["one", "many"].iter().zip(&mut best) {
            let metric = format!("{kind}.plain_{interface}_mbps");
            let goodput = laboratory.goodput(&plain, &format!("{interface}-{kind}-1"), &metric)?;
            *best = goodput.max(*best);
        }
    }
    // The paper's RAW is one flow over one interface, in table 6 the saturated one.
    let raw = laboratory.metric("one.plain_a_mbps");
    laboratory.put("many.best_single_over_raw", best[1] / raw);
    for (name, way) in [("direct", Way::Direct), ("bonded", Way::Bonded)] {
        let times = if way == Way::Direct { interfaces.len() } else { 1 };
        let answers = laboratory.run(name, job(way, measurements("any0", "", times, seconds)))?;
        let one = mean_of(&mut laboratory, &answers, name, times)?;
        let many = laboratory.goodput(&answers, "any0-many-1", &format!("many.{name}_mbps"))?;
        for (kind, value, best) in [("one", one, best[0]), ("many", many, best[1])] {
            laboratory.put(&format!("{kind}.{name}_over_raw"), value / raw);
            laboratory.put(&format!("{kind}.{name}_over_best_single"), value / best);
        }
        let line = format!("many {name}");
        let tenths: Vec<u64> = answers.read::<crate::traffic::Report>("any0-many-1")?.tenths;
        let points =
            (0..).zip(tenths).map(|(tenth, bytes)| (f64::from(tenth) / 10.0, bytes as f64 * 8e-5 / raw));
        laboratory.report.series.push((line, points.collect()));
    }
    Ok(laboratory.report)
}

/// Starts the others' upload, where there is one; it has its share by the time anything is measured.
fn saturating(table: Table) -> String {
    match table {
        Table::TwoIdle => String::new(),
        Table::OneSaturated | Table::WorstCase => format!(
            "others fetch {SERVER_ADDRESS}:9000 --upload --seconds 3000 --json /tmp/others >/dev/null 2>&1 &\nsleep 5\n"
        ),
    }
}

/// One flow `times` times, then many, with a pause after each.
fn measurements(name: &str, options: &str, times: usize, seconds: u32) -> String {
    let mut text = String::new();
    for (kind, flows, times) in [("one", 1, times), ("many", MANY, 1)] {
        for time in 1..=times {
            text += &format!(
                "fetch {name}-{kind}-{time} --upload --flows {flows} --seconds {seconds}{options}\nsleep 2\n"
            );
        }
    }
    text
}

/// The mean of one flow's goodputs; the least is kept as well.
fn mean_of(laboratory: &mut Laboratory, answers: &Answers, name: &str, times: usize) -> anyhow::Result<f64> {
    let (mut sum, mut least) = (0.0, f64::INFINITY);
    for time in 1..=times {
        let metric = format!("one.{name}_{time}_mbps");
        let goodput = laboratory.goodput(answers, &format!("any0-one-{time}"), &metric)?;
        sum += goodput;
        least = goodput.min(least);
    }
    laboratory.put(&format!("one.{name}_least_mbps"), least);
    let mean = sum / times as f64;
    laboratory.put(&format!("one.{name}_mbps"), mean);
    Ok(mean)
}
