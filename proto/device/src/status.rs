//! How commands end.

/// Status of a command. A command that fails has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CommandStatus {
    /// Done.
    Ok = 0,
    /// The device does not know the command, a flag, or a trailing field that is not zero.
    NotSupported = 1,
    /// The command is too short, or its buffers are not what the contract says.
    Malformed = 2,
    /// An argument contradicts another, or the object.
    Invalid = 3,
    /// A value is out of its range.
    OutOfRange = 4,
    /// No object has the handle.
    NoSuchObject = 5,
    /// Others still use the object.
    InUse = 6,
    /// A limit of the device is reached.
    LimitReached = 7,
    /// Not in the state that the object is in.
    WrongState = 8,
    /// An address is not in the memory that the guest shares.
    BadAddress = 9,
    /// HELLO was not said, or ended in no common version.
    NotReady = 10,
    /// The queue is full.
    QueueFull = 11,
    /// A bug in the device. The object may be lost.
    Internal = 12,
}

impl CommandStatus {
    /// All of them.
    pub const ALL: [CommandStatus; 13] = [
        CommandStatus::Ok,
        CommandStatus::NotSupported,
        CommandStatus::Malformed,
        CommandStatus::Invalid,
        CommandStatus::OutOfRange,
        CommandStatus::NoSuchObject,
        CommandStatus::InUse,
        CommandStatus::LimitReached,
        CommandStatus::WrongState,
        CommandStatus::BadAddress,
        CommandStatus::NotReady,
        CommandStatus::QueueFull,
        CommandStatus::Internal,
    ];

    /// The status with a number.
    pub fn from_number(number: u32) -> Option<CommandStatus> {
        CommandStatus::ALL.get(number as usize).copied()
    }
}
