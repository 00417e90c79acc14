; With debug info the manifest knows names, signs and lines of hooks; the clone carries no debug info.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --check-prefix=MANIFEST

; CHECK-NOT: DISubprogram
; CHECK-NOT: llvm.dbg
; MANIFEST: hooks: {"file": "tool.hip", "line": 21, "name": "hook", "parameters": [{"name": "step", "signed": true, "type": "i32"}, {"name": "mask", "signed": false, "type": "i64"}, {"name": "scale", "type": "float"}], "source": "hook"}
; MANIFEST: hooks: {"file": "tool.hip", "line": 8, "name": "plain", "parameters": [{"signed": false, "type": "i8"}, {"signed": true, "type": "i16"}, {"byval": "{ i32, i32 }", "type": "ptr addrspace(5)"}], "source": "plain"}

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [2 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @plain to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 8, ptr addrspace(4) null }
], section "llvm.metadata"

define internal void @hook(i32 %0, i64 %1, float %2) !dbg !5 {
  ret void, !dbg !7
}

define internal void @plain(i8 zeroext %0, i16 signext %1, ptr addrspace(5) byval({ i32, i32 }) %2) {
  ret void
}

!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2}
!0 = distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: !1, emissionKind: FullDebug)
!1 = !DIFile(filename: "tool.hip", directory: "/src")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!5 = distinct !DISubprogram(name: "hook", file: !1, line: 21, type: !6, unit: !0, spFlags: DISPFlagDefinition, retainedNodes: !10)
!6 = !DISubroutineType(types: !8)
!7 = !DILocation(line: 22, scope: !5)
!8 = !{null, !20, !23, !22}
!10 = !{!11, !12, !13}
!11 = !DILocalVariable(name: "step", arg: 1, scope: !5, file: !1, type: !20)
!12 = !DILocalVariable(name: "mask", arg: 2, scope: !5, file: !1, type: !23)
!13 = !DILocalVariable(name: "scale", arg: 3, scope: !5, file: !1, type: !22)
!20 = !DIBasicType(name: "int", size: 32, encoding: DW_ATE_signed)
!21 = !DIBasicType(name: "unsigned long", size: 64, encoding: DW_ATE_unsigned)
!22 = !DIBasicType(name: "float", size: 32, encoding: DW_ATE_float)
!23 = !DIDerivedType(tag: DW_TAG_typedef, name: "uint64_t", baseType: !24)
!24 = !DIDerivedType(tag: DW_TAG_const_type, baseType: !21)
