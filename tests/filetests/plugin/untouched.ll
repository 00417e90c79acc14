; Modules that are not a Luthier tool's device code pass through untouched: host code of the tool, device code of others.
; RUN: sed -e 's/amdgcn-amd-amdhsa/x86_64-unknown-linux-gnu/' -e '/datalayout/d' %s > %t.host.ll
; RUN: opt -passes=no-op-module -S %t.host.ll -o %t.expected
; RUN: %opt -passes=luthier-embed -S %t.host.ll -o %t.actual
; RUN: %bare-opt -passes=luthier-prepare -S %t.host.ll -o %t.prepared
; RUN: cmp %t.expected %t.actual && cmp %t.expected %t.prepared
; RUN: sed -e 's/__luthier_reserved/other/' %s > %t.foreign.ll
; RUN: opt -passes=no-op-module -S %t.foreign.ll -o %t.expected
; RUN: %bare-opt -passes=luthier-embed -S %t.foreign.ll -o %t.actual 2>&1 | FileCheck --check-prefix=LOST %s
; RUN: cmp %t.expected %t.actual
; RUN: %opt -passes=luthier-embed -S < %s | FileCheck %s

; Hooks in it are lost, which is said.
; LOST: warning: luthier: tool.hip:7: hook 'hook' cannot be inserted: its source lacks MARK_LUTHIER_DEVICE_MODULE
; LOST-NOT: warning

; The tool's own device code keeps everything and gains a section.
; CHECK-DAG: @llvm.global.annotations
; CHECK-DAG: @luthier.embedded.bitcode = private {{(addrspace\(1\) )?}}constant [{{[0-9]+}} x i8] c"BC\C0\DE{{.*}}", section ".llvmbc", align 1
; CHECK-DAG: @llvm.compiler.used = {{.*}}@luthier.embedded.bitcode
; CHECK: define internal void @hook() {
; CHECK-NOT: luthier.manifest

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

define internal void @hook() {
  ret void
}
