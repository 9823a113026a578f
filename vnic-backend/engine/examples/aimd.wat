;; A congestion control of one's own, as a program: `vnic-sim program aimd.wat --out aimd.wasm` makes the file that adapters load.
;;
;; Additive increase, multiplicative decrease of the rate, by the round-trip time and by congestion notifications:
;;
;;   round trip up to the target     rate += step, once in a round trip
;;   round trip above it             rate -= rate * beta * (rtt - target) / rtt, once in a round trip
;;   notification                    rate -= rate * cut, once in `hold`
;;   loss                            rate /= 2
;;
;; docs/congestion.md has the contract: what is at which offset of an event and of a flow.
(module
  (memory (export "memory") 1)

  ;; 0: the description. Version 1, 16 bytes kept, limits from the first packet on (1), an acknowledge for each packet.
  (global (export "program") i32 (i32.const 0))
  (data (i32.const 0) "\01\00\00\00" "\10\00\00\00" "\01\00\00\00" "\01\00\00\00")
  ;; 256: the event. 512: the flow; what is kept is at 544: time of the last decrease, and bytes after which the rate changes next.
  (global (export "event") i32 (i32.const 256))
  (global (export "flow") i32 (i32.const 512))

  ;; Parameters: value, least, most. Ends of names are units.
  (global (export "param_target_ns") i32 (i32.const 768))
  (data (i32.const 768) "\50\c3\00\00\00\00\00\00" "\e8\03\00\00\00\00\00\00" "\00\ca\9a\3b\00\00\00\00")
  (global (export "param_step_bps") i32 (i32.const 800))
  (data (i32.const 800) "\80\96\98\00\00\00\00\00" "\40\42\0f\00\00\00\00\00" "\00\e8\76\48\17\00\00\00")
  ;; Parts of 1024.
  (global (export "param_beta") i32 (i32.const 832))
  (data (i32.const 832) "\33\03\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\04\00\00\00\00\00\00")
  (global (export "param_cut") i32 (i32.const 864))
  (data (i32.const 864) "\80\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\04\00\00\00\00\00\00")
  (global (export "param_hold_ns") i32 (i32.const 896))
  (data (i32.const 896) "\50\c3\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\ca\9a\3b\00\00\00\00")

  ;; Lowers the rate by so many parts of 1024.
  (func $lower (param $part i64)
    (local $rate i64)
    (local.set $rate (i64.load (i32.const 512)))
    (i64.store (i32.const 512)
      (i64.sub (local.get $rate) (i64.mul (i64.shr_u (local.get $rate) (i64.const 10)) (local.get $part))))
    ;; Time of the last decrease, and one more cut for people.
    (i64.store (i32.const 544) (i64.load (i32.const 256)))
    (i64.store (i32.const 536) (i64.add (i64.load (i32.const 536)) (i64.const 1)))
    (call $bound))

  ;; Keeps the rate between 10 Mbit/s and the line rate.
  (func $bound
    (if (i64.lt_u (i64.load (i32.const 512)) (i64.const 10000000))
      (then (i64.store (i32.const 512) (i64.const 10000000))))
    (if (i64.gt_u (i64.load (i32.const 512)) (i64.load (i32.const 264)))
      (then (i64.store (i32.const 512) (i64.load (i32.const 264))))))

  (func (export "on_start")
    ;; The rate that the flow has already (24), or the line rate (8).
    (i64.store (i32.const 512)
      (select (i64.load (i32.const 264)) (i64.load (i32.const 280))
        (i64.eq (i64.load (i32.const 280)) (i64.const -1))))
    (i64.store (i32.const 544) (i64.load (i32.const 256)))
    (call $bound))

  (func (export "on_ack")
    (local $rtt i64)
    (local $target i64)
    (local.set $rtt (i64.load (i32.const 288)))
    (local.set $target (i64.load (i32.const 768)))
    ;; Not known, or not yet a round trip after the last change: acked (40) has not come to what was sent (48) then.
    (br_if 0 (i64.eq (local.get $rtt) (i64.const -1)))
    (br_if 0 (i64.le_u (i64.load (i32.const 296)) (i64.load (i32.const 552))))
    (i64.store (i32.const 552) (i64.load (i32.const 304)))
    (if (i64.le_u (local.get $rtt) (local.get $target))
      (then
        (i64.store (i32.const 512) (i64.add (i64.load (i32.const 512)) (i64.load (i32.const 800))))
        (call $bound))
      (else
        (call $lower (i64.div_u
          (i64.mul (i64.load (i32.const 832)) (i64.sub (local.get $rtt) (local.get $target)))
          (local.get $rtt))))))

  (func (export "on_notification")
    (br_if 0 (i64.lt_u
      (i64.sub (i64.load (i32.const 256)) (i64.load (i32.const 544)))
      (i64.load (i32.const 896))))
    (call $lower (i64.load (i32.const 864))))

  (func (export "on_loss")
    (call $lower (i64.const 512))))
