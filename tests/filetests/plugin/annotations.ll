; Hooks and intrinsics are told by their annotations, which then disappear with everything else that only the compiler reads.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --check-prefix=MANIFEST

; CHECK-NOT: llvm.global.annotations
; CHECK-NOT: llvm.used
; CHECK-NOT: llvm.compiler.used
; CHECK-NOT: llvm.metadata
; CHECK-NOT: __luthier_reserved

; CHECK: define void @hook(i32 %value) #[[HOOK:[0-9]+]] {
; CHECK-NEXT: call i32 @intrinsic.i32.i32(i32 %value) #[[CALL:[0-9]+]]
; CHECK-NEXT: call i32 @helper(
; CHECK: declare i32 @intrinsic.i32.i32(i32) #[[INTRINSIC:[0-9]+]]
; CHECK: define internal i32 @helper(i32 %value) #[[HELPER:[0-9]+]] {

; CHECK-DAG: attributes #[[HOOK]] = { alwaysinline convergent nounwind "luthier_hook" "target-cpu"="gfx90a" }
; CHECK-DAG: attributes #[[INTRINSIC]] = { convergent nounwind "luthier_intrinsic"="intrinsic" }
; CHECK-DAG: attributes #[[HELPER]] = { nounwind "luthier_noinline" }
; CHECK-DAG: attributes #[[CALL]] = { convergent nounwind }

; MANIFEST: luthier: 2
; MANIFEST: source: annotations.hip
; MANIFEST: target: gfx90a
; MANIFEST: cuid: {{$}}
; MANIFEST: hooks: {"file": "tool.hip", "line": 7, "name": "hook", "parameters": [{"type": "i32"}], "source": "hook"}
; MANIFEST-NOT: hooks:
; MANIFEST: intrinsics: {"name": "intrinsic.i32.i32", "sources": ["intrinsic"]}
; MANIFEST-NOT: intrinsics:
; MANIFEST-NOT: variables:

source_filename = "annotations.hip"
target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"
@.other = private unnamed_addr addrspace(4) constant [6 x i8] c"other\00", section "llvm.metadata"
@llvm.global.annotations = appending addrspace(1) global [4 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @intrinsic to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @helper to ptr addrspace(1)), ptr addrspace(4) @.other, ptr addrspace(4) @.file, i32 4, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 9, ptr addrspace(4) null }
], section "llvm.metadata"

@llvm.used = appending addrspace(1) global [1 x ptr] [ptr @hook], section "llvm.metadata"
@llvm.compiler.used = appending addrspace(1) global [1 x ptr] [ptr addrspacecast (ptr addrspace(1) @__luthier_reserved to ptr)], section "llvm.metadata"

define internal void @hook(i32 %value) #0 {
  %read = tail call noundef i32 @intrinsic(i32 noundef %value) #2, !range !0
  %sum = call i32 @helper(i32 %read)
  ret void
}

define internal i32 @intrinsic(i32 returned %value) #1 {
  ret i32 %value
}

define linkonce_odr hidden i32 @helper(i32 returned %value) #3 {
  %again = call i32 @intrinsic(i32 %value)
  ret i32 %again
}

attributes #0 = { convergent noinline nounwind willreturn "amdgpu-no-dispatch-ptr" "amdgpu-waves-per-eu"="4,8" "target-cpu"="gfx90a" "uniform-work-group-size"="false" }
attributes #1 = { noinline norecurse nounwind willreturn }
attributes #2 = { nounwind willreturn }
attributes #3 = { noinline nounwind willreturn }

!0 = !{i32 0, i32 10}
