; Inline assembly is refused in hooks and what they call, with its place; elsewhere, and where it says nothing, it is not.
; RUN: not %opt -passes=luthier-prepare -S %s -o %t 2>&1 | FileCheck %s
; RUN: sed -e 's/s_nop 0/; only a comment/' %s > %t.helper.ll
; RUN: not %opt -passes=luthier-prepare -S %t.helper.ll -o %t 2>&1 | FileCheck %s --check-prefix=HELPER
; RUN: sed -e 's/s_nop 0/; only a comment/' -e 's/v_mov.*$/", ""(), !dbg !7/' %s > %t.fine.ll
; RUN: %opt -passes=luthier-prepare -S %t.fine.ll | FileCheck %s --check-prefix=FINE
; RUN: sed -e 's/s_nop 0", ""/", "~{s4}"/' %s > %t.clobber.ll
; RUN: not %opt -passes=luthier-prepare -S %t.clobber.ll -o %t 2>&1 | FileCheck %s --check-prefix=CLOBBER

; CHECK: error: luthier: inline assembly is not allowed in hooks and what they call, because its registers are not known; use an intrinsic (in function 'hook')
; HELPER: error: tool.hip:12: luthier: inline assembly is not allowed in hooks and what they call, because its registers are not known; use an intrinsic (in function 'helper(int)')
; CLOBBER: (in function 'hook')

; FINE-NOT: module asm
; FINE-LABEL: define void @hook(i32 %value)
; FINE-NEXT: call void asm sideeffect "; only a comment"
; FINE-NEXT: call i32 asm "; keep $0", "=v,0"

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
module asm ".globl nothing"

@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [2 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @intrinsic to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null }
], section "llvm.metadata"

define internal void @hook(i32 %value) {
  call void asm sideeffect "s_nop 0", ""()
  %same = call i32 asm "; keep $0", "=v,0"(i32 %value)
  call void @_Z6helperi(i32 %same)
  call void @intrinsic()
  ret void
}

define internal void @_Z6helperi(i32 %value) !dbg !5 {
  call void asm sideeffect "v_mov_b32 v0, 0", ""(), !dbg !7
  ret void
}

define internal void @intrinsic() {
  call void asm sideeffect "s_nop 0", ""()
  ret void
}

define amdgpu_kernel void @kernel() {
  call void asm sideeffect "s_nop 0", ""()
  ret void
}

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !1, emissionKind: LineTablesOnly)
!1 = !DIFile(filename: "tool.hip", directory: "/src")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!5 = distinct !DISubprogram(name: "helper", file: !1, line: 11, type: !6, unit: !0, spFlags: DISPFlagDefinition)
!6 = !DISubroutineType(types: !8)
!7 = !DILocation(line: 12, scope: !5)
!8 = !{}
