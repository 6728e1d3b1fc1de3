//! The description of the objects for programs, in the D-Bus specification's "Introspection Data Format".

use std::fmt::Write;

use super::methods::METHODS;
use super::properties::{DAEMON, DAEMON_PROPERTIES, NETWORK, NETWORK_PROPERTIES, NETWORKS, Property, ROOT};

/// All interfaces of the service: what `docs/dbus.xml` holds.
pub fn document() -> String {
    let mut text = format!("{HEAD}<node>\n");
    text.push_str(&daemon());
    text.push_str(&network());
    text.push_str("</node>\n");
    text
}

/// What an object at a path has; `None` if there is none. `networks`: the paths of the networks' objects.
pub(super) fn of_object(path: &str, networks: &[String]) -> Option<String> {
    let mut text = format!("{HEAD}<node>\n");
    match path {
        "/" => text.push_str("  <node name=\"org\"/>\n"),
        "/org" => text.push_str("  <node name=\"anabranch\"/>\n"),
        ROOT => {
            text.push_str(STANDARD);
            text.push_str(OBJECT_MANAGER);
            text.push_str(PROPERTIES);
            text.push_str(&daemon());
            text.push_str("  <node name=\"networks\"/>\n");
        }
        NETWORKS => {
            for network in networks {
                let name = network.rsplit('/').next().unwrap_or_default();
                // Only a formatter may fail, and this one does not.
                let _ = writeln!(text, "  <node name=\"{name}\"/>");
            }
        }
        _ if networks.iter().any(|network| network == path) => {
            text.push_str(STANDARD);
            text.push_str(PROPERTIES);
            text.push_str(&network());
        }
        _ => return None,
    }
    text.push_str("</node>\n");
    Some(text)
}

fn daemon() -> String {
    let mut text = format!("  <interface name=\"{DAEMON}\">\n");
    for method in METHODS {
        let inputs: String = method
            .arguments
            .iter()
            .map(|(name, argument)| argument_line(argument.signature(), name, "in"))
            .collect();
        let output = argument_line(method.answer.signature(), "answer", "out");
        text.push_str(&format!("    <method name=\"{}\">\n{inputs}{output}    </method>\n", method.name));
    }
    text.push_str(CALL);
    text.push_str(EVENT);
    text.push_str(&properties(DAEMON_PROPERTIES));
    text.push_str("  </interface>\n");
    text
}

fn network() -> String {
    format!("  <interface name=\"{NETWORK}\">\n{}  </interface>\n", properties(NETWORK_PROPERTIES))
}

fn argument_line(signature: &str, name: &str, direction: &str) -> String {
    format!("      <arg type=\"{signature}\" name=\"{name}\" direction=\"{direction}\"/>\n")
}

fn properties<T>(all: &[Property<T>]) -> String {
    let each = |property: &Property<T>| {
        let access = if property.set.is_some() { "readwrite" } else { "read" };
        let head = format!(
            "    <property name=\"{}\" type=\"{}\" access=\"{access}\"",
            property.name, property.signature
        );
        if property.told {
            return format!("{head}/>\n");
        }
        format!("{head}>\n      <annotation name=\"{CHANGES}\" value=\"false\"/>\n    </property>\n")
    };
    all.iter().map(each).collect()
}

const HEAD: &str = "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\"\n \
                    \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n";
const CHANGES: &str = "org.freedesktop.DBus.Property.EmitsChangedSignal";
const CALL: &str = r#"    <method name="Call">
      <arg type="s" name="method" direction="in"/>
      <arg type="s" name="path" direction="in"/>
      <arg type="s" name="body" direction="in"/>
      <arg type="q" name="status" direction="out"/>
      <arg type="s" name="answer" direction="out"/>
    </method>
"#;
const EVENT: &str = r#"    <signal name="Event">
      <arg type="t" name="sequence"/>
      <arg type="t" name="time"/>
      <arg type="s" name="kind"/>
      <arg type="s" name="subject"/>
      <arg type="s" name="text"/>
    </signal>
"#;
const STANDARD: &str = r#"  <interface name="org.freedesktop.DBus.Peer">
    <method name="Ping"/>
  </interface>
  <interface name="org.freedesktop.DBus.Introspectable">
    <method name="Introspect">
      <arg type="s" name="xml" direction="out"/>
    </method>
  </interface>
"#;
const PROPERTIES: &str = r#"  <interface name="org.freedesktop.DBus.Properties">
    <method name="Get">
      <arg type="s" name="interface" direction="in"/>
      <arg type="s" name="property" direction="in"/>
      <arg type="v" name="value" direction="out"/>
    </method>
    <method name="GetAll">
      <arg type="s" name="interface" direction="in"/>
      <arg type="a{sv}" name="properties" direction="out"/>
    </method>
    <method name="Set">
      <arg type="s" name="interface" direction="in"/>
      <arg type="s" name="property" direction="in"/>
      <arg type="v" name="value" direction="in"/>
    </method>
    <signal name="PropertiesChanged">
      <arg type="s" name="interface"/>
      <arg type="a{sv}" name="changed"/>
      <arg type="as" name="invalidated"/>
    </signal>
  </interface>
"#;
const OBJECT_MANAGER: &str = r#"  <interface name="org.freedesktop.DBus.ObjectManager">
    <method name="GetManagedObjects">
      <arg type="a{oa{sa{sv}}}" name="objects" direction="out"/>
    </method>
    <signal name="InterfacesAdded">
      <arg type="o" name="object"/>
      <arg type="a{sa{sv}}" name="interfaces"/>
    </signal>
    <signal name="InterfacesRemoved">
      <arg type="o" name="object"/>
      <arg type="as" name="interfaces"/>
    </signal>
  </interface>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_description_is_this_one() {
        let committed = include_str!("../../../../../docs/dbus.xml");
        assert!(committed == document(), "cargo run -p anabranch-daemon --example dbus > docs/dbus.xml");
    }

    #[test]
    fn there_are_no_objects_but_those() {
        let networks = [format!("{NETWORKS}/3")];
        for path in ["/", "/org", ROOT, NETWORKS, &networks[0]] {
            assert!(of_object(path, &networks).is_some(), "{path}");
        }
        for path in ["/org/anabranch/networks/4", "/org/other", "", "/org/anabranch/"] {
            assert_eq!(of_object(path, &networks), None, "{path}");
        }
    }
}
