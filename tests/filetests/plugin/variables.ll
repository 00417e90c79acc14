; Variables become declarations that the runtime binds; what they lose is in the manifest. Constants whose value nobody
; can change stay foldable.
; RUN: %opt -passes=luthier-prepare -S < %s | FileCheck %s
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --check-prefix=MANIFEST

; CHECK-NOT: .managed
; CHECK-NOT: comdat
; CHECK: @counter = external addrspace(1) externally_initialized global ptr addrspace(1)
; CHECK: @zeros = external addrspace(1) externally_initialized global ptr addrspace(1)
; CHECK: @device = external addrspace(1) externally_initialized global i32, align 4
; CHECK: @constant = external addrspace(4) externally_initialized constant float, align 4
; CHECK: @_ZL5local = external addrspace(1) global i32
; CHECK: @table = available_externally unnamed_addr addrspace(4) constant [4 x i16] [i16 1, i16 2, i16 3, i16 4]
; CHECK: @lds = external addrspace(3) global [64 x i32]
; CHECK: @record = external addrspace(1) global { i8, i32, <3 x i16>, double, i1 }
; CHECK: @pointers = external addrspace(1) global [3 x ptr]
; CHECK: @_ZN1C6memberE = external addrspace(1) global i64
; CHECK: @dynamic_lds = external addrspace(3) global [0 x i32], align 4
; CHECK: @__luthier_constant = available_externally unnamed_addr addrspace(4) constant i8 7
; CHECK: @__hip_cuid_0123abcd = addrspace(1) global i8 0{{$}}
; CHECK-NOT: @unused_table

; MANIFEST: cuid: 0123abcd
; counter.managed holds 5:
; MANIFEST: variables: {"address_space": 1, "align": 8, "bytes": "BQAAAAAAAAA=", "managed": true, "name": "counter", "size": 8, "type": "i64"}
; MANIFEST: variables: {"address_space": 1, "align": 16, "managed": true, "name": "zeros", "only_added": true, "size": 12, "type": "[3 x i32]"}
; MANIFEST: variables: {"address_space": 1, "align": 4, "bytes": "BwAAAA==", "name": "device", "size": 4, "type": "i32"}
; MANIFEST: variables: {"address_space": 4, "align": 4, "bytes": "AAAgQA==", "constant": true, "name": "constant", "size": 4, "type": "float"}
; MANIFEST: variables: {"address_space": 1, "align": 4, "bytes": "/////w==", "local": true, "name": "_ZL5local", "size": 4, "type": "i32"}
; MANIFEST: variables: {"address_space": 4, "align": 2, "bytes": "AQACAAMABAA=", "constant": true, "local": true, "name": "table", "size": 8, "type": "[4 x i16]"}
; MANIFEST: variables: {"address_space": 3, "align": 16, "local": true, "name": "lds", "size": 256, "type": "[64 x i32]"}
; 01 000000 78563412 | 0100 0200 0300 0000 | 1.0 | 01 and padding
; MANIFEST: variables: {"address_space": 1, "align": 16, "bytes": "AQAAAHhWNBIBAAIAAwAAAAAAAAAAAPA/AQAAAAAAAAA=", "name": "record", "size": 32, "type": "{ i8, i32, <3 x i16>, double, i1 }"}
; MANIFEST: variables: {"address_space": 1, "align": 16, "name": "pointers", "only_added": true, "pointers": {{\[\[}}0, "device", 0], [16, "record", 8]], "size": 24, "type": "[3 x ptr]"}
; MANIFEST: variables: {"address_space": 1, "align": 8, "bytes": "//////////8=", "name": "_ZN1C6memberE", "only_added": true, "size": 8, "type": "i64"}
; MANIFEST: variables: {"address_space": 3, "align": 4, "name": "dynamic_lds", "only_added": true, "size": 0, "type": "[0 x i32]", "undefined": true}
; MANIFEST: variables: {{.*}}"bytes": "Bw==", "constant": true, "local": true, "name": "__luthier_constant"

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

$_ZN1C6memberE = comdat any

@counter.managed = addrspace(1) externally_initialized global i64 5, align 8
@counter = addrspace(1) externally_initialized global ptr addrspace(1) null
@zeros.managed = hidden addrspace(1) externally_initialized global [3 x i32] zeroinitializer, align 16
@zeros = hidden addrspace(1) externally_initialized global ptr addrspace(1) null
@device = protected addrspace(1) externally_initialized global i32 7, align 4
@constant = protected addrspace(4) externally_initialized constant float 2.5, align 4
@_ZL5local = internal addrspace(1) global i32 -1
@table = private unnamed_addr addrspace(4) constant [4 x i16] [i16 1, i16 2, i16 3, i16 4]
@unused_table = private unnamed_addr addrspace(4) constant [4 x i16] [i16 1, i16 2, i16 3, i16 4]
@lds = internal addrspace(3) global [64 x i32] undef, align 16
@record = hidden addrspace(1) global { i8, i32, <3 x i16>, double, i1 } { i8 1, i32 305419896, <3 x i16> <i16 1, i16 2, i16 3>, double 1.0, i1 true }
@pointers = hidden addrspace(1) global [3 x ptr] [ptr addrspacecast (ptr addrspace(1) @device to ptr), ptr null, ptr addrspacecast (ptr addrspace(1) getelementptr (i8, ptr addrspace(1) @record, i64 8) to ptr)]
@_ZN1C6memberE = weak_odr hidden addrspace(1) global i64 -1, comdat
@dynamic_lds = external addrspace(3) global [0 x i32], align 4
@0 = private unnamed_addr addrspace(4) constant i8 7
@__hip_cuid_0123abcd = addrspace(1) global i8 0
@llvm.compiler.used = appending addrspace(1) global [2 x ptr] [ptr addrspacecast (ptr addrspace(1) @counter.managed to ptr), ptr addrspacecast (ptr addrspace(1) @__hip_cuid_0123abcd to ptr)], section "llvm.metadata"

define internal void @hook(i32 %index) {
  %storage = load ptr addrspace(1), ptr addrspace(1) @counter
  store i64 1, ptr addrspace(1) %storage
  %slot = getelementptr i16, ptr addrspace(4) @table, i32 %index
  %value = load i16, ptr addrspace(4) %slot
  store i16 %value, ptr addrspace(3) @lds
  store i16 %value, ptr addrspace(1) @_ZL5local
  %byte = load i8, ptr addrspace(4) @0
  store i8 %byte, ptr addrspace(3) @lds
  ret void
}
