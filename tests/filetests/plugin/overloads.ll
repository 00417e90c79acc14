; Overloads are told apart by their argument types. By pointers' pointees they cannot be: LLVM has none.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --check-prefix=MANIFEST

; CHECK-LABEL: define void @hook(
; CHECK-NEXT: call void @probe.i32(i32 1)
; CHECK-NEXT: call void @probe.i64(i64 2)
; CHECK-NEXT: call void @probe.i32.i32(i32 3, i32 4)
; CHECK-NEXT: call void @probe()
; CHECK-NEXT: call void @probe.ptr(ptr %p)
; CHECK-NEXT: call void @probe.ptr(ptr %p)
; CHECK-NEXT: call void @"probe.ptr addrspace(3)"(ptr addrspace(3) %q)

; MANIFEST: {"name": "probe", "sources": ["probe()"]}
; MANIFEST: {"name": "probe.ptr", "sources": ["probe(int*)", "probe(float*)"]}

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [8 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z5probei to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z5probel to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z5probeii to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z5probev to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z5probePi to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z5probePf to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z5probePU3AS3i to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null }
], section "llvm.metadata"

define internal void @hook(ptr %p, ptr addrspace(3) %q) {
  call void @_Z5probei(i32 1)
  call void @_Z5probel(i64 2)
  call void @_Z5probeii(i32 3, i32 4)
  call void @_Z5probev()
  call void @_Z5probePi(ptr %p)
  call void @_Z5probePf(ptr %p)
  call void @_Z5probePU3AS3i(ptr addrspace(3) %q)
  ret void
}

define internal void @_Z5probei(i32 %a) {
  ret void
}
define internal void @_Z5probel(i64 %a) {
  ret void
}
define internal void @_Z5probeii(i32 %a, i32 %b) {
  ret void
}
define internal void @_Z5probev() {
  ret void
}
define internal void @_Z5probePi(ptr %a) {
  ret void
}
define internal void @_Z5probePf(ptr %a) {
  ret void
}
define internal void @_Z5probePU3AS3i(ptr addrspace(3) %a) {
  ret void
}
