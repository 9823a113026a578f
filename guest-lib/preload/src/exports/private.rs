//! Functions of libibverbs for rdma-core's own libraries and providers, and sockets of librdmacm.
//!
//! If our library is in the place of the real one, libmlx5 for example asks it for them, and so do the providers that
//! the real library loads for real devices. All calls go to the real library: each function is a jump, whatever its
//! arguments are.
//!
//! ```text
//!  libmlx5 ──ibv_cmd_create_qp──▶ jump ──▶ real library
//!                                  └─the first time: looked up by its name
//! ```

#![expect(
    unsafe_code,
    reason = "jumps into the real library, whatever the arguments are"
)]

use std::sync::atomic::AtomicBool;

/// Whether providers may destroy what the kernel has lost already (`RDMAV_ALLOW_DISASSOC_DESTROY`). The real library
/// sets the variable that the loader finds first, which is this one.
// SAFETY: a name of libibverbs, which nobody else here has.
#[unsafe(no_mangle)]
pub static verbs_allow_disassociate_destroy: AtomicBool = AtomicBool::new(false);

#[cfg(target_arch = "x86_64")]
mod jumps {
    use std::arch::naked_asm;
    use std::ffi::{CStr, c_int};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A function of the real library: its name, and its address once somebody has asked for it.
    #[repr(C)]
    pub struct Jump {
        there: AtomicUsize,
        name: &'static CStr,
        /// Its version, where that says which library.
        version: Option<&'static CStr>,
    }

    /// Finds a function.
    extern "C" fn find(jump: &Jump) -> usize {
        let found = crate::real::look_up(jump.name, jump.version).addr();
        let there = if found == 0 {
            missing as *const () as usize
        } else {
            found
        };
        jump.there.store(there, Ordering::Release);
        there
    }

    /// The function in place of one that the real library does not have.
    extern "C" fn missing() -> c_int {
        libc::ENOSYS
    }

    /// Jumps to the function of the [`Jump`] in r11, whatever its arguments are: it keeps all registers that may hold
    /// some, and the stack.
    // SAFETY: it is whole as it is written, and goes on to the function that was called.
    #[unsafe(naked)]
    extern "C" fn find_and_jump() {
        // SAFETY: at the beginning of a function the stack is 8 bytes past a multiple of 16; with seven registers and
        // 128 bytes more it is at a multiple, as a call wants it, and afterwards it is as it was.
        naked_asm!(
            "push rax",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "sub rsp, 128",
            "movups [rsp], xmm0",
            "movups [rsp + 16], xmm1",
            "movups [rsp + 32], xmm2",
            "movups [rsp + 48], xmm3",
            "movups [rsp + 64], xmm4",
            "movups [rsp + 80], xmm5",
            "movups [rsp + 96], xmm6",
            "movups [rsp + 112], xmm7",
            "mov rdi, r11",
            "call {find}",
            "mov r11, rax",
            "movups xmm0, [rsp]",
            "movups xmm1, [rsp + 16]",
            "movups xmm2, [rsp + 32]",
            "movups xmm3, [rsp + 48]",
            "movups xmm4, [rsp + 64]",
            "movups xmm5, [rsp + 80]",
            "movups xmm6, [rsp + 96]",
            "movups xmm7, [rsp + 112]",
            "add rsp, 128",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "pop rax",
            "jmp r11",
            find = sym find,
        )
    }

    macro_rules! jumps {
        ($version:expr; $($name:ident)*) => {$(
            /// A function of the real library.
            ///
            /// # Safety
            /// As for the real one.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                static JUMP: Jump = Jump {
                    there: AtomicUsize::new(0),
                    name: crate::export::c_text(concat!(stringify!($name), "\0")),
                    version: $version,
                };
                // SAFETY: r11 belongs to nobody at the beginning of a function. The first field of a jump is where to
                // go, or 0.
                naked_asm!(
                    "endbr64",
                    "lea r11, [rip + {jump}]",
                    "cmp qword ptr [r11], 0",
                    "je {find_and_jump}",
                    "jmp [r11]",
                    jump = sym JUMP,
                    find_and_jump = sym find_and_jump,
                )
            }
        )*};
    }

    jumps! {
        None;
        __ioctl_final_num_attrs __verbs_log _verbs_init_and_alloc_context execute_ioctl ibv_cmd_advise_mr
        ibv_cmd_alloc_dm ibv_cmd_alloc_dmah ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast
        ibv_cmd_close_xrcd ibv_cmd_create_ah ibv_cmd_create_comp_cntr ibv_cmd_create_counters ibv_cmd_create_cq
        ibv_cmd_create_cq_ex ibv_cmd_create_cq_ex2 ibv_cmd_create_flow ibv_cmd_create_flow_action_esp
        ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
        ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
        ibv_cmd_destroy_ah ibv_cmd_destroy_comp_cntr ibv_cmd_destroy_counters ibv_cmd_destroy_cq
        ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
        ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_export_dmabuf_fd ibv_cmd_free_dm
        ibv_cmd_free_dmah ibv_cmd_get_context ibv_cmd_inc_comp_cntr ibv_cmd_inc_err_comp_cntr ibv_cmd_modify_cq
        ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq
        ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv
        ibv_cmd_qp_attach_comp_cntr ibv_cmd_query_comp_cntr_caps ibv_cmd_query_context ibv_cmd_query_device_any
        ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_port_speed ibv_cmd_query_qp ibv_cmd_query_srq
        ibv_cmd_read_comp_cntr ibv_cmd_read_counters ibv_cmd_read_err_comp_cntr ibv_cmd_reg_dm_mr
        ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_reg_mr_ex ibv_cmd_req_notify_cq ibv_cmd_rereg_mr
        ibv_cmd_resize_cq ibv_cmd_set_comp_cntr ibv_cmd_set_err_comp_cntr ibv_dmabuf_heap_alloc
        ibv_dmabuf_heap_cc_shared_init ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free ibv_read_ibdev_sysfs_file
        ibv_wr_opcode_str verbs_init_cq verbs_open_device verbs_register_driver_34 verbs_register_driver_57
        verbs_register_driver_59 verbs_register_driver_64 verbs_register_driver_65 verbs_set_ops
        verbs_uninit_context
    }
    // The real library's sockets, which call our `rdma_*`.
    jumps! {
        Some(c"RDMACM_1.0");
        raccept rbind rclose rconnect rfcntl rgetpeername rgetsockname rgetsockopt riomap riounmap riowrite rlisten rpoll
        rread rreadv rrecv rrecvfrom rrecvmsg rselect rsend rsendmsg rsendto rsetsockopt rshutdown rsocket rwrite rwritev
    }
}
