; Names of intrinsics are qualified by namespaces and classes, without template arguments of the function itself.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s

; CHECK-LABEL: define void @hook()
; CHECK-NEXT: call i32 @"a::b::deep.i32"()
; CHECK-NEXT: call i32 @"(anonymous namespace)::hidden.i32"()
; CHECK-NEXT: call i32 @"a::Probe::count.i32.i32"(i32 1)
; CHECK-NEXT: call i32 @"a::Typed<float>::count.i32"()
; CHECK-NEXT: call i32 @plain_c.i32()
; CHECK-NEXT: call void @"a::operator+"()

; CHECK-DAG: "luthier_intrinsic"="a::b::deep"
; CHECK-DAG: "luthier_intrinsic"="a::Probe::count"
; CHECK-DAG: "luthier_intrinsic"="plain_c"

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [7 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN1a1b4deepEv to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN12_GLOBAL__N_16hiddenEv to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN1a5Probe5countEi to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN1a5TypedIfE5countEv to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @plain_c to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN1aplEv to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null }
], section "llvm.metadata"

define internal void @hook() {
  %1 = call i32 @_ZN1a1b4deepEv()
  %2 = call i32 @_ZN12_GLOBAL__N_16hiddenEv()
  %3 = call i32 @_ZN1a5Probe5countEi(i32 1)
  %4 = call i32 @_ZN1a5TypedIfE5countEv()
  %5 = call i32 @plain_c()
  call void @_ZN1aplEv()
  ret void
}

define internal i32 @_ZN1a1b4deepEv() {
  ret i32 0
}
define internal i32 @_ZN12_GLOBAL__N_16hiddenEv() {
  ret i32 0
}
define internal i32 @_ZN1a5Probe5countEi(i32 %a) {
  ret i32 0
}
define internal i32 @_ZN1a5TypedIfE5countEv() {
  ret i32 0
}
define internal i32 @plain_c() {
  ret i32 0
}
define internal void @_ZN1aplEv() {
  ret void
}
