//! What stands in a row, and how it is read.

use super::super::RegistryError;

/// One value of a row, or a parameter of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Value {
    /// What is larger than either database can hold becomes the largest that it can.
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<[u8; 32]> for Value {
    fn from(bytes: [u8; 32]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row that was found. A value of another kind than is asked for means that the registry is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row(pub(super) Vec<Value>);

impl Row {
    /// The text in a column, from 0.
    pub fn text(&self, column: usize) -> Result<String, RegistryError> {
        match self.0.get(column) {
            Some(Value::Text(text)) => Ok(text.clone()),
            _ => Err(RegistryError::Damaged),
        }
    }

    /// The number in a column.
    pub fn number<T: TryFrom<i64>>(&self, column: usize) -> Result<T, RegistryError> {
        self.number_or_null(column)?.ok_or(RegistryError::Damaged)
    }

    /// The number in a column that may have none.
    pub fn number_or_null<T: TryFrom<i64>>(&self, column: usize) -> Result<Option<T>, RegistryError> {
        match self.0.get(column) {
            Some(Value::Number(number)) => T::try_from(*number).map(Some).map_err(|_| RegistryError::Damaged),
            Some(Value::Null) => Ok(None),
            _ => Err(RegistryError::Damaged),
        }
    }

    /// The 32 bytes in a column.
    pub fn key(&self, column: usize) -> Result<[u8; 32], RegistryError> {
        self.key_or_null(column)?.ok_or(RegistryError::Damaged)
    }

    /// The 32 bytes in a column that may have none.
    pub fn key_or_null(&self, column: usize) -> Result<Option<[u8; 32]>, RegistryError> {
        match self.0.get(column) {
            Some(Value::Bytes(bytes)) => {
                bytes.as_slice().try_into().map(Some).map_err(|_| RegistryError::Damaged)
            }
            Some(Value::Null) => Ok(None),
            _ => Err(RegistryError::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_another_kind_are_damage() {
        let row = Row(vec![Value::from("van"), Value::Number(-1), Value::Null, Value::Bytes(vec![1; 31])]);
        assert_eq!(row.text(0).unwrap(), "van");
        assert_eq!(row.number_or_null::<u64>(2).unwrap(), None);
        assert!(
            row.number::<u64>(1).is_err() && row.number::<u64>(0).is_err() && row.number::<u64>(2).is_err()
        );
        assert!(row.key(3).is_err() && row.text(3).is_err() && row.text(9).is_err());
        assert_eq!(row.key_or_null(2).unwrap(), None);
    }

    #[test]
    fn numbers_too_large_become_the_largest() {
        assert_eq!(Value::from(u64::MAX), Value::Number(i64::MAX));
        assert_eq!(Value::from(None::<u64>), Value::Null);
    }
}
