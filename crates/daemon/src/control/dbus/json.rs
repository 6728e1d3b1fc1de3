//! The control API's JSON as values of the bus, and back: objects are `a{sv}`, lists in them `av`, whole numbers `t` or `x`, others `d`. What is
//! null is left out.

use linux::dbus::Value;
use serde_json::{Map, Number, Value as Json};

/// A value; `None` for null.
pub(super) fn to_value(json: &Json) -> Option<Value> {
    Some(match json {
        Json::Null => return None,
        Json::Bool(value) => Value::boolean(*value),
        Json::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(number), _, _) => Value::uint64(number),
            (_, Some(number), _) => Value::Number(b'x', number as u64),
            (_, _, number) => Value::double(number.unwrap_or_default()),
        },
        Json::String(text) => Value::text(text),
        Json::Array(list) => {
            let each = |value| Some(Value::Variant(Box::new(to_value(value)?)));
            Value::Array("v".to_owned(), list.iter().filter_map(each).collect())
        }
        Json::Object(fields) => object(fields),
    })
}

/// An object, as `a{sv}`.
pub(super) fn object(fields: &Map<String, Json>) -> Value {
    Value::properties(fields.iter().filter_map(|(name, value)| Some((name.as_str(), to_value(value)?))))
}

/// A list of objects, as `aa{sv}`; what is no object is left out.
pub(super) fn objects(list: &[Json]) -> Value {
    Value::Array("a{sv}".to_owned(), list.iter().filter_map(Json::as_object).map(object).collect())
}

/// JSON from a value; `None` if JSON has nothing like it.
pub(super) fn of_value(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Number(b'b', truth) => Json::Bool(*truth != 0),
        Value::Number(b'n', bits) => Json::from(*bits as u16 as i16),
        Value::Number(b'i', bits) => Json::from(*bits as u32 as i32),
        Value::Number(b'x', bits) => Json::from(*bits as i64),
        Value::Number(b'd', bits) => Json::Number(Number::from_f64(f64::from_bits(*bits))?),
        Value::Number(b'y' | b'q' | b'u' | b't', number) => Json::from(*number),
        Value::Text(text) => Json::from(text.as_str()),
        Value::Variant(inner) => of_value(inner)?,
        Value::Array(element, _) if element.starts_with('{') => {
            let entry =
                |(name, value): (&Value, &Value)| Some((name.as_text()?.to_owned(), of_value(value)?));
            Json::Object(value.entries().map(entry).collect::<Option<_>>()?)
        }
        Value::Array(_, all) => Json::Array(all.iter().map(of_value).collect::<Option<_>>()?),
        Value::Bytes(bytes) => Json::from(bytes.as_slice()),
        Value::Number(..) | Value::Path(_) | Value::Signature(_) | Value::Struct(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn objects_come_back_as_they_were_but_for_nulls() {
        let json = json!({"a": 1, "b": -2, "c": 0.5, "d": ["x", {"e": true}], "f": null, "g": []});
        let value = to_value(&json).unwrap();
        assert_eq!(value.signature(), "a{sv}");
        let expected = json!({"a": 1, "b": -2, "c": 0.5, "d": ["x", {"e": true}], "g": []});
        assert_eq!(of_value(&value), Some(expected));
    }

    #[test]
    fn numbers_keep_their_sign_and_nonsense_is_nothing() {
        assert_eq!(of_value(&Value::Number(b'n', 0xffff)), Some(json!(-1)));
        assert_eq!(of_value(&Value::Number(b'i', 0xffff_fffe)), Some(json!(-2)));
        assert_eq!(of_value(&Value::uint64(u64::MAX)), Some(json!(u64::MAX)));
        assert_eq!(of_value(&Value::double(f64::NAN)), None);
        assert_eq!(of_value(&Value::Number(b'h', 0)), None);
        assert_eq!(of_value(&Value::path("/")), None);
    }
}
