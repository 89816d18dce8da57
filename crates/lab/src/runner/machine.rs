//! Whether the machine and its servers are still what they were when the run began: a run that goes on after days, or
//! beside somebody who sets limits, is of two machines.

use loadline_record::MachineRecord;

use crate::journal::ServerFacts;

/// Of what is not there to be read, or was not kept by the version that began the run.
const NOT_KNOWN: &str = "not known";

/// What is not the same, as a sentence; `None`: all of it is.
pub(super) fn changed(first: &MachineRecord, now: &MachineRecord) -> Option<String> {
    let facts = facts(first).into_iter().zip(facts(now));
    let differences: Vec<String> = facts
        .filter(|(before, after)| before != after && before.1 != NOT_KNOWN)
        .map(|((name, before), (_, after))| format!("{name} {after}, not {before}"))
        .collect();
    (!differences.is_empty()).then(|| {
        format!(
            "The machine is not what it was when the run began: {}.",
            differences.join("; ")
        )
    })
}

/// That a server is another version than the first one, as a sentence; `None`: it is the same, or not
/// known.
pub(super) fn other_version(first: &str, now: &ServerFacts) -> Option<String> {
    let (name, version) = (&now.name, &now.version);
    (!version.is_empty() && version != first).then(|| {
        format!("The server {name} is not what it was when the run began: {version}, not {first}.")
    })
}

/// Not what plans give to a trial, such as its CPUs.
fn facts(machine: &MachineRecord) -> [(&'static str, String); 7] {
    let number = |it: Option<u64>| it.map_or_else(|| "unlimited".to_owned(), |it| it.to_string());
    let port = |it: Option<u16>| number(it.map(u64::from));
    let named = |it: &str| match it {
        "" => NOT_KNOWN.to_owned(),
        _ => it.to_owned(),
    };
    let ports = [port(machine.port_first), port(machine.port_last)];
    [
        ("processor", named(&machine.cpu_model)),
        ("CPUs", machine.cpus.to_string()),
        ("kernel", named(&machine.kernel)),
        ("governor", named(&machine.governor)),
        ("congestion control", named(&machine.congestion_control)),
        ("descriptors of a process", number(machine.descriptors_max)),
        ("ports", ports.join(" to ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_named_with_both_values() {
        let first = MachineRecord {
            kernel: "6.18".to_owned(),
            descriptors_max: Some(1_048_576),
            port_first: Some(32_768),
            port_last: Some(60_999),
            steal_s: Some(0.1),
            ..MachineRecord::default()
        };
        let mut now = MachineRecord {
            steal_s: Some(0.2),
            cpus_usable: 1,
            ..first.clone()
        };
        assert_eq!(changed(&first, &now), None);
        now.descriptors_max = Some(1024);
        now.port_first = Some(1024);
        assert_eq!(
            changed(&first, &now).unwrap(),
            "The machine is not what it was when the run began: descriptors of a process 1024, not \
             1048576; ports 1024 to 60999, not 32768 to 60999."
        );
    }
}
