//! Which functions there are: all that the real library has for programs, and those of later versions.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// All functions of rdma-core's `libibverbs.map` up to version 65 that are for programs.
const PUBLIC: &str = "
    _ibv_query_comp_cntr_caps _ibv_query_gid_ex _ibv_query_gid_table ibv_ack_async_event ibv_ack_cq_events
    ibv_alloc_buf ibv_alloc_dmah ibv_alloc_pd ibv_attach_mcast ibv_close_device ibv_copy_ah_attr_from_kern
    ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern ibv_create_ah
    ibv_create_ah_from_wc ibv_create_comp_channel ibv_create_comp_cntr ibv_create_cq ibv_create_qp ibv_create_srq
    ibv_dealloc_dmah ibv_dealloc_pd ibv_dereg_mr ibv_destroy_ah ibv_destroy_comp_channel ibv_destroy_comp_cntr
    ibv_destroy_cq ibv_destroy_qp ibv_destroy_srq ibv_detach_mcast ibv_dm_export_dmabuf_fd ibv_dofork_range
    ibv_dontfork_range ibv_event_type_str ibv_export_buf_dmabuf_fd ibv_fork_init ibv_free_buf ibv_free_device_list
    ibv_get_async_event ibv_get_cq_event ibv_get_device_guid ibv_get_device_index ibv_get_device_list
    ibv_get_device_name ibv_get_pkey_index ibv_get_sysfs_path ibv_import_device ibv_import_dm ibv_import_mr
    ibv_import_pd ibv_inc_comp_cntr ibv_inc_err_comp_cntr ibv_init_ah_from_wc ibv_is_fork_initialized ibv_modify_qp
    ibv_modify_srq ibv_node_type_str ibv_open_device ibv_port_state_str ibv_qp_attach_comp_cntr ibv_qp_to_qp_ex
    ibv_query_device ibv_query_ece ibv_query_gid ibv_query_pkey ibv_query_port ibv_query_port_speed ibv_query_qp
    ibv_query_qp_data_in_order ibv_query_srq ibv_rate_to_mbps ibv_rate_to_mult ibv_read_comp_cntr
    ibv_read_err_comp_cntr ibv_read_sysfs_file ibv_reg_buf_mr ibv_reg_dmabuf_mr ibv_reg_mr ibv_reg_mr_ex
    ibv_reg_mr_iova ibv_reg_mr_iova2 ibv_register_driver ibv_rereg_mr ibv_resize_cq ibv_resolve_eth_l2_from_gid
    ibv_set_comp_cntr ibv_set_ece ibv_set_err_comp_cntr ibv_unimport_dm ibv_unimport_mr ibv_unimport_pd
    ibv_wc_status_str mbps_to_ibv_rate mult_to_ibv_rate";

/// All functions of librdmacm 65 (`librdmacm.map`) but its sockets.
const CONNECTIONS: &str = "
    rdma_accept rdma_ack_cm_event rdma_bind_addr rdma_connect rdma_create_ep rdma_create_event_channel rdma_create_id
    rdma_create_qp rdma_create_qp_ex rdma_create_srq rdma_create_srq_ex rdma_destroy_ep rdma_destroy_event_channel
    rdma_destroy_id rdma_destroy_qp rdma_destroy_srq rdma_disconnect rdma_establish rdma_event_str rdma_free_devices
    rdma_freeaddrinfo rdma_get_cm_event rdma_get_devices rdma_get_dst_port rdma_get_remote_ece rdma_get_request
    rdma_get_src_port rdma_getaddrinfo rdma_init_qp_attr rdma_join_multicast rdma_join_multicast_ex
    rdma_leave_multicast rdma_listen rdma_migrate_id rdma_notify rdma_query_addrinfo rdma_reject rdma_reject_ece
    rdma_resolve_addr rdma_resolve_addrinfo rdma_resolve_route rdma_set_local_ece rdma_set_option rdma_write_cm_event";

/// Its sockets, which call these.
const SOCKETS: &str = "
    raccept rbind rclose rconnect rfcntl rgetpeername rgetsockname rgetsockopt riomap riounmap riowrite rlisten rpoll
    rread rreadv rrecv rrecvfrom rrecvmsg rselect rsend rsendmsg rsendto rsetsockopt rshutdown rsocket rwrite rwritev";

/// Names in such a list.
fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split_whitespace()
}

/// Functions that a library exports, with their versions where they have any.
fn exported(library: &Path) -> Vec<(String, Option<String>)> {
    let nm = crate::common::run(
        Command::new("nm")
            .args(["-D", "--defined-only", "--with-symbol-versions"])
            .arg(library),
    );
    crate::common::text(&nm.stdout)
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .map(|symbol| match symbol.split_once('@') {
            Some((name, version)) => (name.into(), Some(version.trim_start_matches('@').into())),
            None => (symbol.into(), None),
        })
        .collect()
}

fn ours() -> BTreeSet<String> {
    let all = exported(&crate::common::library());
    assert!(
        all.iter().all(|(_, version)| version.is_none()),
        "a library without versions serves programs that ask for any"
    );
    all.into_iter().map(|(name, _)| name).collect()
}

#[test]
fn every_function_of_every_version_is_there() {
    let ours = ours();
    let missing: Vec<_> = names(PUBLIC)
        .chain(names(CONNECTIONS))
        .filter(|name| !ours.contains(*name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_the_real_library_has_for_programs_is_there() {
    let Some(real) = crate::common::real("coverage::what_the_real_library_has_for_programs_is_there") else {
        return;
    };
    let ours = ours();
    let theirs = exported(real);
    let public = theirs
        .iter()
        .filter(|(_, version)| version.as_ref().is_some_and(|v| v.starts_with("IBVERBS_1.")))
        // The names of versions are symbols, too.
        .filter(|(name, _)| !name.starts_with("IBVERBS_"));
    let names: BTreeSet<_> = public.map(|(name, _)| name).collect();
    assert!(
        names.len() > 70,
        "{} has {} functions only",
        real.display(),
        names.len()
    );
    let missing: Vec<_> = names.iter().filter(|name| !ours.contains(**name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn what_the_real_library_of_connections_has_is_there() {
    const NAME: &str = "coverage::what_the_real_library_of_connections_has_is_there";
    let Some(real) = crate::common::real_of_connections(NAME) else {
        return;
    };
    let ours = ours();
    let theirs = exported(&real);
    let public = theirs.iter().map(|(name, _)| name.as_str());
    let strange: Vec<_> = public
        .filter(|name| !name.starts_with("RDMACM_") && !ours.contains(*name))
        // (They are jumps in assembly.)
        .filter(|name| cfg!(target_arch = "x86_64") || !names(SOCKETS).any(|known| known == *name))
        .collect();
    assert!(
        theirs.len() > 60,
        "{} has {} functions only",
        real.display(),
        theirs.len()
    );
    assert!(strange.is_empty(), "{strange:?}");
}

#[test]
fn nothing_else_gets_in_the_way_of_programs() {
    // For iproute2's `rdma` alone; of others they are the C library's.
    let netlink = ["sendto", "socket"];
    // libmlx5's, for DC: of contexts that are not ours they go there.
    let dynamic = [
        "mlx5dv_create_qp",
        "mlx5dv_is_supported",
        "mlx5dv_open_device",
        "mlx5dv_qp_ex_from_ibv_qp_ex",
        "mlx5dv_query_device",
    ];
    let strange: Vec<_> = ours()
        .into_iter()
        .filter(|name| {
            !names(PUBLIC)
                .chain(names(CONNECTIONS))
                .chain(names(SOCKETS))
                .any(|known| known == name)
        })
        .filter(|name| !is_private(name) && !netlink.contains(&name.as_str()))
        .filter(|name| !dynamic.contains(&name.as_str()))
        .collect();
    assert!(strange.is_empty(), "{strange:?}");
}

/// What rdma-core's own libraries, programs and providers use besides.
fn is_private(name: &str) -> bool {
    let prefixes = ["ibv_cmd_", "ibv_dmabuf_heap_", "verbs_", "_verbs_", "__verbs_"];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
        || [
            "__ioctl_final_num_attrs",
            "execute_ioctl",
            "ibv_query_gid_type",
            "ibv_read_ibdev_sysfs_file",
            "ibv_wr_opcode_str",
        ]
        .contains(&name)
}

#[cfg(target_arch = "x86_64")]
#[test]
fn what_providers_want_is_there() {
    let Some(real) = crate::common::real("coverage::what_providers_want_is_there") else {
        return;
    };
    let ours = ours();
    let missing: Vec<_> = exported(real)
        .into_iter()
        .filter(|(_, version)| {
            version
                .as_ref()
                .is_some_and(|v| v.starts_with("IBVERBS_PRIVATE_"))
        })
        .map(|(name, _)| name)
        .filter(|name| !name.starts_with("IBVERBS_") && !ours.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}
