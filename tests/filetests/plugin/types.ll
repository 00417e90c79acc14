; Types are spelled as LLVM spells them, named structures by name alone.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s

; CHECK: %struct.float4 = type { <4 x float> }
; CHECK-LABEL: define void @hook(<2 x i16> %v, [2 x i32] %s)
; CHECK-NEXT: call <4 x float> @"f.<4 x float>.<2 x i16>"(<2 x i16> %v)
; CHECK-NEXT: call %struct.float4 @"g.%struct.float4.i32"(i32 1)
; CHECK-NEXT: call { i32, float } @"h.{ i32, float }.[2 x i32].%struct.float4"([2 x i32] %s, %struct.float4 %2)
; CHECK-NEXT: call half @k.half.double.i1(double 1.000000e+00, i1 true)

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
%struct.float4 = type { <4 x float> }

@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [5 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z1fDv2_s to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_Z1gi to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @h to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @k to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 1, ptr addrspace(4) null }
], section "llvm.metadata"

define internal void @hook(<2 x i16> %v, [2 x i32] %s) {
  %1 = call <4 x float> @_Z1fDv2_s(<2 x i16> %v)
  %2 = call %struct.float4 @_Z1gi(i32 1)
  %3 = call { i32, float } @h([2 x i32] %s, %struct.float4 %2)
  %4 = call half @k(double 1.0, i1 true)
  ret void
}

define internal <4 x float> @_Z1fDv2_s(<2 x i16> %v) {
  ret <4 x float> zeroinitializer
}
define internal %struct.float4 @_Z1gi(i32 %v) {
  ret %struct.float4 zeroinitializer
}
define internal { i32, float } @h([2 x i32] %s, %struct.float4 %v) {
  ret { i32, float } zeroinitializer
}
define internal half @k(double %d, i1 %b) {
  ret half 0.0
}
