; Aliases are replaced by what they name, so that a variable can become a declaration; the manifest keeps their names.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --check-prefix=MANIFEST

; CHECK-NOT: alias
; CHECK: @array = external addrspace(1) global [4 x i32]
; CHECK-LABEL: define void @hook()
; CHECK-NEXT: store i32 1, ptr addrspace(1) @array
; CHECK-NEXT: load i32, ptr addrspace(1) getelementptr {{.*}}@array
; CHECK-NEXT: call void @helper()
; CHECK-NEXT: call void @intrinsic()
; CHECK: define internal void @helper()

; MANIFEST: aliases: {"name": "same", "of": "array", "offset": 0}
; MANIFEST: aliases: {"name": "third", "of": "array", "offset": 8}
; MANIFEST: aliases: {"name": "helper_alias", "of": "helper", "offset": 0}
; MANIFEST-NOT: local_alias

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [2 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook_alias to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @intrinsic_alias to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null }
], section "llvm.metadata"

@array = addrspace(1) global [4 x i32] zeroinitializer
@same = alias i32, ptr addrspace(1) @array
@third = alias i32, ptr addrspace(1) getelementptr inbounds ([4 x i32], ptr addrspace(1) @array, i64 0, i64 2)
@helper_alias = alias void (), ptr @helper
@hook_alias = alias void (), ptr @hook
@intrinsic_alias = alias void (), ptr @intrinsic
@local_alias = internal alias i32, ptr addrspace(1) @array

define internal void @hook() {
  store i32 1, ptr addrspace(1) @same
  %value = load i32, ptr addrspace(1) @third
  call void @helper_alias()
  call void @intrinsic_alias()
  ret void
}

define hidden void @helper() {
  ret void
}

define internal void @intrinsic() {
  ret void
}
