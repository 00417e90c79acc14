; Instantiations of a template that are equal by LLVM's types become one intrinsic; others stay apart.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --check-prefix=MANIFEST

; CHECK-LABEL: define void @hook()
; CHECK-NEXT: call i32 @"luthier::readReg.i32.i32"(i32 256)
; CHECK-NEXT: call i32 @"luthier::readReg.i32.i32"(i32 257)
; CHECK-NEXT: call i64 @"luthier::readReg.i64.i32"(i32 106)
; CHECK-NEXT: call float @"luthier::readReg.float.i32"(i32 258)
; CHECK-NEXT: call void @"luthier::writeReg.i32.i64"(i32 106,
; CHECK-COUNT-4: declare {{.*}} @"luthier::
; CHECK-NOT: declare

; MANIFEST: intrinsics: {"name": "luthier::readReg.float.i32", "sources": ["luthier::readReg<float>(int)"]}
; MANIFEST: intrinsics: {"name": "luthier::readReg.i32.i32", "sources": ["luthier::readReg<int>(int)", "luthier::readReg<unsigned int>(int)"]}
; MANIFEST: intrinsics: {"name": "luthier::readReg.i64.i32", "sources": ["luthier::readReg<unsigned long>(int)"]}
; MANIFEST: intrinsics: {"name": "luthier::writeReg.i32.i64", "sources": ["luthier::writeReg<unsigned long>(int, unsigned long)"]}

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [6 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN7luthier7readRegIiEET_i to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN7luthier7readRegIjEET_i to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN7luthier7readRegImEET_i to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN7luthier7readRegIfEET_i to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN7luthier8writeRegImEEviT_ to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 4, ptr addrspace(4) null }
], section "llvm.metadata"

define internal void @hook() {
  %a = call i32 @_ZN7luthier7readRegIiEET_i(i32 256)
  %b = call i32 @_ZN7luthier7readRegIjEET_i(i32 257)
  %c = call i64 @_ZN7luthier7readRegImEET_i(i32 106)
  %d = call contract nnan float @_ZN7luthier7readRegIfEET_i(i32 258)
  call void @_ZN7luthier8writeRegImEEviT_(i32 106, i64 %c)
  ret void
}

define internal i32 @_ZN7luthier7readRegIiEET_i(i32 %reg) noinline {
  ret i32 0
}
define internal i32 @_ZN7luthier7readRegIjEET_i(i32 %reg) noinline {
  ret i32 0
}
define internal i64 @_ZN7luthier7readRegImEET_i(i32 %reg) noinline {
  ret i64 0
}
define internal float @_ZN7luthier7readRegIfEET_i(i32 %reg) noinline {
  ret float 0.0
}
define internal void @_ZN7luthier8writeRegImEEviT_(i32 %reg, i64 %value) noinline {
  ret void
}
