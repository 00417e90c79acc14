// Macros for kernels of tests: one name for instructions that generations spell differently.

.macro func name
  .globl \name
  .protected \name
  .p2align 8
  .type \name,@function
\name:
.endm
.macro endfunc name
  .size \name, .-\name
.endm

.macro by_generation old, gfx11, operands:vararg  // spellings before GFX11, and from GFX11 on
  .if .amdgcn.gfx_generation_number >= 11
    \gfx11 \operands
  .else
    \old \operands
  .endif
.endm
.macro load1 operands:vararg  // scalar loads of one and two registers
  by_generation s_load_dword, s_load_b32, \operands
.endm
.macro load2 operands:vararg
  by_generation s_load_dwordx2, s_load_b64, \operands
.endm
.macro global_load operands:vararg
  by_generation global_load_dword, global_load_b32, \operands
.endm
.macro global_store operands:vararg
  by_generation global_store_dword, global_store_b32, \operands
.endm
.macro vadd operands:vararg  // without a carry
  .if .amdgcn.gfx_generation_number >= 10
    v_add_nc_u32_e32 \operands
  .else
    v_add_u32_e32 \operands
  .endif
.endm
.macro lds_load operands:vararg
  by_generation ds_read_b32, ds_load_b32, \operands
.endm
.macro lds_store operands:vararg
  by_generation ds_write_b32, ds_store_b32, \operands
.endm
.macro barrier
  .if .amdgcn.gfx_generation_number >= 12
    s_barrier_signal -1
    s_barrier_wait -1
  .else
    s_barrier
  .endif
.endm
.macro wait_lds
  .if .amdgcn.gfx_generation_number >= 12
    s_wait_dscnt 0x0
  .else
    s_waitcnt lgkmcnt(0)
  .endif
.endm
.macro wait_scalar  // for scalar loads and LDS
  .if .amdgcn.gfx_generation_number >= 12
    s_wait_kmcnt 0x0
  .else
    s_waitcnt lgkmcnt(0)
  .endif
.endm
.macro wait_vector count=0  // for loads of vector memory
  .if .amdgcn.gfx_generation_number >= 12
    s_wait_loadcnt \count
  .else
    s_waitcnt vmcnt(\count)
  .endif
.endm
.macro wait_stores
  .if .amdgcn.gfx_generation_number >= 12
    s_wait_storecnt 0x0
  .elseif .amdgcn.gfx_generation_number >= 10
    s_waitcnt_vscnt null, 0x0
  .else
    s_waitcnt vmcnt(0)
  .endif
.endm

// EXEC of the default wave sizes: 64 lanes on GFX9, 32 from GFX10 on.
.macro by_wave wave64, wave32
  .if .amdgcn.gfx_generation_number >= 10
    \wave32
  .else
    \wave64
  .endif
.endm
.macro save_exec first
  by_wave "s_mov_b64 s[\first:\first+1], exec", "s_mov_b32 s\first, exec_lo"
.endm
.macro set_exec value
  by_wave "s_mov_b64 exec, \value", "s_mov_b32 exec_lo, \value"
.endm
.macro restore_exec first
  by_wave "s_mov_b64 exec, s[\first:\first+1]", "s_mov_b32 exec_lo, s\first"
.endm

.macro extend high  // GFX12's s_getpc_b64 leaves the sign of the address out
  .if .amdgcn.gfx_generation_number >= 12
    s_sext_i32_i16 \high, \high
  .endif
.endm
.macro address first, second, symbol  // of a symbol, from the program counter
  s_getpc_b64 s[\first:\second]
  .if .amdgcn.gfx_generation_number >= 12
    s_sext_i32_i16 s\second, s\second
    s_add_co_u32 s\first, s\first, \symbol@rel32@lo+8
    s_add_co_ci_u32 s\second, s\second, \symbol@rel32@hi+16
  .else
    s_add_u32 s\first, s\first, \symbol@rel32@lo+4
    s_addc_u32 s\second, s\second, \symbol@rel32@hi+12
  .endif
.endm

.macro call first, second, symbol  // the return address goes to s[30:31]
  address \first, \second, \symbol
  s_swappc_b64 s[30:31], s[\first:\second]
.endm
.macro workgroup_id register
  .if .amdgcn.gfx_generation_number >= 12
    s_mov_b32 \register, ttmp9
  .else
    s_mov_b32 \register, s2
  .endif
.endm

.macro begin  // s[4:5] is the buffer, v0 the work-item, v1 its offset in the buffer
  load2 s[4:5], s[0:1], 0x0
  wait_scalar
  v_lshlrev_b32_e32 v1, 2, v0
.endm
.macro put register, number  // store a register as one of the lane's eight values
  global_store v1, \register, s[4:5] offset:256*\number
.endm
.macro fill  // write every register of v0 to v15, then start a block
  .irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
  v_mov_b32_e32 v\number, 0
  .endr
  s_branch .Lfilled
.Lfilled:
.endm
