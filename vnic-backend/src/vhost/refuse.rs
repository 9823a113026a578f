//! Requests of vhost-user that no device of ours offers: a VMM that sends one all the same is told so.

/// The methods of `VhostUserBackendReqHandlerMut` for them.
macro_rules! refuse_what_is_not_offered {
    () => {
        fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
            Err(Error::InvalidOperation("this is no graphics device"))
        }

        fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
            Err(Error::InvalidOperation("shared objects are not offered"))
        }

        fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
            Err(Error::InvalidOperation(
                "in-flight tracking is not offered: completion is in order",
            ))
        }

        fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
            Err(Error::InvalidOperation(
                "in-flight tracking is not offered: completion is in order",
            ))
        }

        fn set_device_state_fd(
            &mut self,
            _direction: VhostTransferStateDirection,
            _phase: VhostTransferStatePhase,
            _fd: File,
        ) -> Result<Option<File>> {
            Err(Error::InvalidOperation(
                "device state transfer is not offered",
            ))
        }

        fn check_device_state(&mut self) -> Result<()> {
            Err(Error::InvalidOperation(
                "device state transfer is not offered",
            ))
        }

        fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
            Err(Error::InvalidOperation(
                "shared memory regions are not offered",
            ))
        }
    };
}
