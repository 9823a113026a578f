//! `ibv_post_send`, `ibv_post_recv`, `ibv_post_srq_recv`.
