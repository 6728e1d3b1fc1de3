//! JUGGLER figure 6: an unmodified BitTorrent client and two seeds, over one network, over two cards to which its sockets are bound, and in
//! direct mode.

use super::{FILE_BYTES, Links, bars_over_one, id, listed};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, Bed, Experiment, Goal, Report};
use crate::vm::cards;
use crate::vm::direct::{Answers, DirectJob, Way};
use crate::vm::program;
use crate::vm::topology::SERVER_ADDRESS;
use std::time::Duration;

/// What each network carries, thousand bytes a second of the plain link each way, and whether that is slow, as the paper says.
const RATES: [(u32, bool); 6] =
    [(25, true), (50, true), (100, true), (250, false), (500, false), (1_000, false)];
/// The file has about forty pieces.
const PIECE_BYTES: u32 = 256 << 10;
/// Over one network, where networks are slow.
const GOAL: f64 = 1.9;
/// The paper's client over two access points, over one, where networks are slow.
const PAPER_SLOW: f64 = 1.75;
/// Of two cards. The row asks for no such ratio; fig4's does, and a client in direct mode should do as well.
const GOAL_OF_CARDS: f64 = 0.95;
/// The other seed's; the first is where the server is.
const SECOND_SEED: &str = "198.51.101.2";

/// How often the file is downloaded in direct mode, where chance may decide which network a connection gets, and otherwise: a seed opens its
/// hands every ten seconds, so a single download may wait for them once more than another.
fn downloads(links: Links) -> (u32, u32) {
    match links {
        Links::Wired => (5, 3),
        Links::Air => (1, 1),
    }
}

pub(super) fn experiment(links: Links) -> Experiment {
    let (downloads, downloads_bound) = downloads(links);
    let (rates, mut spec) = (links.rates(RATES), toml::Table::new());
    links.describe(&mut spec);
    spec.insert("kilobytes_a_second".into(), listed(rates.iter().map(|(rate, _)| *rate)));
    spec.insert("file_bytes".into(), (FILE_BYTES as i64).into());
    spec.insert("piece_bytes".into(), i64::from(PIECE_BYTES).into());
    spec.insert(
        "client".into(),
        "aria2 as Debian has it; two seeds of the same, one of them beside the tracker".into(),
    );
    let bound = format!("the mean of {downloads_bound} downloads");
    spec.insert(
        "one".into(),
        format!("all connections are bound to one card (SO_BINDTODEVICE, by a preloaded library); {bound}")
            .into(),
    );
    spec.insert(
        "two_cards".into(),
        format!("the same, those to one seed to one card and those to the other to the other; {bound}")
            .into(),
    );
    spec.insert(
        "direct".into(),
        format!("anabranch without a gateway, nothing bound; the mean of {downloads} downloads").into(),
    );
    let slow = rates.iter().filter(|(_, is_slow)| *is_slow);
    let mut goals: Vec<Goal> =
        slow.map(|(rate, _)| Goal::at_least(format!("rate_{rate}.direct_over_one"), GOAL)).collect();
    goals.extend(
        rates
            .iter()
            .map(|(rate, _)| Goal::at_least(format!("rate_{rate}.direct_over_two_cards"), GOAL_OF_CARDS)),
    );
    Experiment {
        id: id(&links.of("fig6-bittorrent")),
        title: "a torrent from two seeds over two networks, against one network and two bound cards"
            .to_owned(),
        spec,
        paper: Some(
            "figure 6: a modified client over one radio that takes turns is more than 1.75 times as fast as over one access \
             point where the way to the seeds is slow, less where it is faster"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars: bars_over_one(rates.iter().map(|(rate, _)| *rate)),
        unit: "times one card",
        axes: Axes::default(),
        runner: Box::new(move |_, seed| run(links, seed)),
    }
}

fn run(links: Links, seed: u64) -> anyhow::Result<Report> {
    let (downloads, downloads_bound) = downloads(links);
    let mut laboratory = Laboratory::open(seed)?;
    let client = program("aria2c", "aria2")?;
    let library = cards::library()?;
    for (rate, _) in links.rates(RATES) {
        let most_seconds = 60 + 3 * FILE_BYTES / (u64::from(rate) * 1_000);
        let job = |way, script: String| DirectJob {
            set_up: seeds() + &functions(most_seconds),
            programs: vec![client.clone(), library.path()],
            length: Duration::from_secs(u64::from(2 * downloads_bound) * most_seconds),
            ..links.job(rate, way, script)
        };
        let times = |name: &str, count: u32, cards: &str| -> String {
            (1..=count).map(|time| format!("torrent {name}-{time} '{cards}'\n")).collect()
        };
        let two = format!("{SERVER_ADDRESS}=a,{SECOND_SEED}=b");
        let plain = times("one", downloads_bound, "*=a") + &times("two", downloads_bound, &two);
        let plain = laboratory.run(&format!("rate_{rate}.plain"), job(Way::Plain, plain))?;
        let direct = times("direct", downloads, "");
        let direct = laboratory.run(&format!("rate_{rate}.direct"), job(Way::Direct, direct))?;
        let one = put(&mut laboratory, &plain, rate, "one", "one", downloads_bound)?;
        let two = put(&mut laboratory, &plain, rate, "two", "two_cards", downloads_bound)?;
        let direct = put(&mut laboratory, &direct, rate, "direct", "direct", downloads)?;
        laboratory.put(&format!("rate_{rate}.two_cards_over_one"), one / two);
        laboratory.put(&format!("rate_{rate}.direct_over_one"), one / direct);
        laboratory.put(&format!("rate_{rate}.direct_over_two_cards"), two / direct);
    }
    laboratory.put("paper.slow_over_one", PAPER_SLOW);
    Ok(laboratory.report)
}

/// Puts mean and worst of the downloads' seconds; the mean.
fn put(
    laboratory: &mut Laboratory,
    answers: &Answers,
    rate: u32,
    files: &str,
    metric: &str,
    count: u32,
) -> anyhow::Result<f64> {
    let times: Vec<f64> = (1..=count)
        .map(|time| seconds(answers, &format!("{files}-{time}")))
        .collect::<anyhow::Result<_>>()?;
    let mean = times.iter().sum::<f64>() / f64::from(count);
    laboratory.put(&format!("rate_{rate}.{metric}_s"), mean);
    laboratory.put(&format!("rate_{rate}.{metric}_worst_s"), times.iter().copied().fold(0.0, f64::max));
    Ok(mean)
}

/// Seconds between the two times that the guest has kept.
fn seconds(answers: &Answers, file: &str) -> anyhow::Result<f64> {
    let text = answers.text(file)?;
    let times: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [began, ended] = times[..] else { anyhow::bail!("{file} has no two times: {text:?}") };
    anyhow::ensure!(ended > began, "{file} took no time");
    Ok(ended - began)
}

/// Another seed beside the server's, the file and its torrent, the tracker and both seeds. Everything that would ask the Internet
/// or the neighbours for peers is off; all else is as it comes.
const SEEDS: &str = r#"ip netns add second; prepare second
join core second second uplink 198.51.101.1 198.51.101.2
ip -n second route add default via 198.51.101.1
mkdir /tmp/original /tmp/seed-server /tmp/seed-second
anabranch-lab traffic torrent /tmp/original /tmp/file.torrent $SIZE \
    --tracker http://198.51.100.2:6969/announce || fail 'the torrent'
in_namespace server anabranch-lab traffic tracker 198.51.100.2:6969 &
ALONE='--no-conf --enable-dht=false --enable-dht6=false --bt-enable-lpd=false --enable-peer-exchange=false
    --file-allocation=none --summary-interval=0 --console-log-level=warn --show-console-readout=false'
for seed in server second; do
    cp /tmp/original/file /tmp/seed-$seed/file
    in_namespace $seed aria2c $ALONE --dir=/tmp/seed-$seed --check-integrity=true --seed-ratio=0.0 \
        --listen-port=6881 /tmp/file.torrent >/results/seed-$seed.log 2>&1 &
    sleep 5
done
"#;

/// The seeds and what they have.
fn seeds() -> String {
    format!("SIZE='--bytes {FILE_BYTES} --piece {PIECE_BYTES}'\n{SEEDS}")
}

/// `torrent NAME CARDS` downloads and keeps when it began and ended.
fn functions(most_seconds: u64) -> String {
    format!(
        r#"torrent() {{
    mkdir /tmp/$1
    sleep 2
    began=$(cut -d' ' -f1 /proc/uptime)
    in_namespace device env CARDS="$2" LD_PRELOAD=/usr/local/bin/cards.so timeout {most_seconds} \
        aria2c $ALONE --dir=/tmp/$1 --seed-time=0 --listen-port=6881 /tmp/file.torrent >/results/$1.log 2>&1 ||
        fail "the download $1"
    echo $began $(cut -d' ' -f1 /proc/uptime) >/results/$1
    cmp /tmp/original/file /tmp/$1/file || fail "the bytes of $1"
    rm -r /tmp/$1
}}
"#
    )
}
