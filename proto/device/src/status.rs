//! How commands end.

numbers! {
    /// Status of a command. A command that fails has changed nothing.
    enum CommandStatus: u32 {
        /// Done.
        Ok = 0,
        /// The device does not know the command, a flag, or a reserved or trailing byte that is not zero, or it does not
        /// have the capability.
        NotSupported = 1,
        /// Lengths or buffers are not what the contract says.
        Malformed = 2,
        /// An argument contradicts another, or the object.
        Invalid = 3,
        /// A value is out of its range.
        OutOfRange = 4,
        /// No object has the handle.
        NoSuchObject = 5,
        /// Other objects still use the object.
        InUse = 6,
        /// A limit of the device is reached.
        LimitReached = 7,
        /// The command is not possible in the state of the object.
        WrongState = 8,
        /// Memory is not shared by the guest, not aligned as it must be, or too small.
        BadAddress = 9,
        /// The driver has not sent HELLO.
        NotReady = 10,
        /// The settings of the adapter forbid it.
        NotPermitted = 11,
        /// Nobody knows the Ethernet address of a GID (yet).
        Unreachable = 12,
        /// A bug in the device. The object may be lost.
        Internal = 13,
    }
}
