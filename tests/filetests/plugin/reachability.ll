; Functions reached by calls, by address and through variables stay; recursion does not keep the unreachable.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s --implicit-check-not=@dead
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --check-prefix=MANIFEST

; CHECK: @callbacks = external addrspace(1) global [1 x ptr]
; CHECK-DAG: declare {{.*}}i32 @llvm.amdgcn.workitem.id.x()
; CHECK-DAG: define void @hook()
; CHECK-DAG: define internal void @called()
; CHECK-DAG: define internal void @addressed()
; CHECK-DAG: define internal void @stored()
; MANIFEST: variables: {{.*}}"name": "callbacks", "pointers": {{\[\[}}0, "stored", 0]]

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [1 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null }
], section "llvm.metadata"

@callbacks = addrspace(1) global [1 x ptr] [ptr @stored]
@dead_string = private addrspace(4) constant [2 x i8] c"x\00"

declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()

define internal void @hook() {
  call void @called()
  ret void
}

define linkonce_odr void @called() {
  %id = call i32 @llvm.amdgcn.workitem.id.x()
  store ptr @addressed, ptr addrspace(1) @callbacks
  ret void
}

define internal void @addressed() {
  ret void
}

define hidden void @stored() {
  ret void
}

define linkonce_odr void @dead1() {
  call void @dead2(ptr @dead_string_user)
  ret void
}

define linkonce_odr void @dead2(ptr %f) {
  call void @dead1()
  ret void
}

define internal ptr addrspace(4) @dead_string_user() {
  ret ptr addrspace(4) @dead_string
}
