use super::super::parse;
use super::super::uplink::carried_bytes;
use super::*;

fn coded(line: &str, chunks: u32, mixing: Mixing, seed: u64) -> (Coded, f64) {
    let spec = parse(line).unwrap().remove(0);
    let coded = run(&spec, chunks, None, mixing, seed);
    let rate = f64::from(chunks) / coded.took.unwrap().as_secs_f64();
    (coded, rate)
}

fn carried(kilobits: f64) -> f64 {
    kilobits * 1_000.0 / 8.0 / carried_bytes().0 as f64
}

const THREE: &str = "400/50 | 800/25 0.9 0.9 0.8 0.6 | 1200/50 0.7 0.6 0.5 0.2 | 400/75 1 0.95 0.9 0.8";

#[test]
fn what_is_decoded_is_what_was_sent() {
    for mixing in [Mixing::Neighbours, Mixing::Source] {
        for chunks in [1, 31, 32, 33, 700] {
            let (coded, _) = coded(THREE, chunks, mixing, u64::from(chunks));
            assert!(coded.identical, "{mixing:?}, {chunks} chunks");
        }
    }
}

#[test]
fn uplinks_are_filled_where_the_air_is_wide() {
    for mixing in [Mixing::Neighbours, Mixing::Source] {
        let (coded, rate) = coded(THREE, 12_000, mixing, 1);
        let all = carried(2_800.0);
        assert!(rate > 0.93 * all && rate <= all, "{mixing:?}: {rate} of {all}, {coded:?}");
    }
}

#[test]
fn few_combinations_are_sent_in_vain() {
    for mixing in [Mixing::Neighbours, Mixing::Source] {
        let (coded, _) = coded(THREE, 12_000, mixing, 2);
        let carried: u32 = coded.carried.iter().sum();
        assert!(f64::from(coded.wasted) < 0.04 * f64::from(carried), "{mixing:?}: {coded:?}");
    }
}

#[test]
fn coefficients_ride_on_the_wire_where_neighbours_combine() {
    // One neighbour with perfect ears and the bottleneck: its uplink carries 33 bytes more of each chunk.
    let line = "1/25 | 400/25 1 1 1 1";
    let (_, mixed) = coded(line, 3_200, Mixing::Neighbours, 1);
    let (_, plain) = coded(line, 3_200, Mixing::Source, 1);
    let part = mixed / plain;
    assert!((0.965..0.99).contains(&part), "{part}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for mixing in [Mixing::Neighbours, Mixing::Source] {
        assert_eq!(coded(THREE, 500, mixing, 9), coded(THREE, 500, mixing, 9));
    }
}
