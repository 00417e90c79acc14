; Which variables the manifest says are only added to: nothing else is done with them, and no result is looked at.
; RUN: %opt -passes=luthier-prepare < %s | %manifest | FileCheck %s --implicit-check-not='"only_added"'

; CHECK: "name": "added", "only_added": true
; CHECK: "name": "each_lane", "only_added": true
; CHECK: "name": "element", "only_added": true
; CHECK: "name": "field", "only_added": true
; CHECK: "name": "narrow", "only_added": true
; CHECK: "name": "managed", "only_added": true
; CHECK: "name": "unused", "only_added": true
; CHECK: "name": "result", "
; CHECK: "name": "result_of_call", "
; CHECK: "name": "also_read", "
; CHECK: "name": "largest", "
; CHECK: "name": "ordered", "
; CHECK: "name": "volatile_sum", "
; CHECK: "name": "short", "
; CHECK: "name": "stored", "
; CHECK: "name": "address_stored", "
; CHECK: "name": "handed_on", "
; CHECK: "name": "chosen", "
; CHECK: "name": "number", "
; CHECK: "name": "own_address", "
; CHECK: "name": "own_address_by_call", "
; CHECK: "name": "index", "
; CHECK: "name": "pointed_to", "
; CHECK: "name": "managed_read", "
; CHECK: "name": "managed_pointer", "

target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1"
target triple = "amdgcn-amd-amdhsa"

@__luthier_reserved.managed = addrspace(1) externally_initialized global i8 0
@__luthier_reserved = addrspace(1) externally_initialized global ptr addrspace(1) null
@.hook = private unnamed_addr addrspace(4) constant [13 x i8] c"luthier_hook\00", section "llvm.metadata"
@.intrinsic = private unnamed_addr addrspace(4) constant [18 x i8] c"luthier_intrinsic\00", section "llvm.metadata"
@.file = private unnamed_addr addrspace(4) constant [9 x i8] c"tool.hip\00", section "llvm.metadata"

@llvm.global.annotations = appending addrspace(1) global [2 x { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) }] [
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @hook to ptr addrspace(1)), ptr addrspace(4) @.hook, ptr addrspace(4) @.file, i32 7, ptr addrspace(4) null },
  { ptr addrspace(1), ptr addrspace(4), ptr addrspace(4), i32, ptr addrspace(4) } { ptr addrspace(1) addrspacecast (ptr @_ZN7luthier10sAtomicAddImEET_PS1_S1_ to ptr addrspace(1)), ptr addrspace(4) @.intrinsic, ptr addrspace(4) @.file, i32 3, ptr addrspace(4) null }
], section "llvm.metadata"

@added = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@each_lane = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@element = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@field = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@narrow = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@managed.managed = addrspace(1) externally_initialized global i64 0, align 8
@managed = addrspace(1) externally_initialized global ptr addrspace(1) null
@unused = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@result = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@result_of_call = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@also_read = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@largest = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@ordered = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@volatile_sum = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@short = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@stored = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@address_stored = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@handed_on = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@chosen = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@number = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@own_address = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@own_address_by_call = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@index = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@pointed_to = addrspace(1) externally_initialized global [2 x i64] zeroinitializer, align 8
@managed_read.managed = addrspace(1) externally_initialized global i64 0, align 8
@managed_read = addrspace(1) externally_initialized global ptr addrspace(1) null
@managed_pointer.managed = addrspace(1) externally_initialized global i64 0, align 8
@managed_pointer = addrspace(1) externally_initialized global ptr addrspace(1) null
@pointer = addrspace(4) externally_initialized constant ptr addrspace(1) @pointed_to, align 8
@llvm.compiler.used = appending addrspace(1) global [2 x ptr] [ptr addrspacecast (ptr addrspace(1) @added to ptr), ptr addrspacecast (ptr addrspace(1) @managed to ptr)], section "llvm.metadata"

define internal i64 @_ZN7luthier10sAtomicAddImEET_PS1_S1_(ptr %place, i64 %number) {
  ret i64 0
}

declare void @other(ptr addrspace(1))

define internal void @hook(i1 %c, i64 %n, ptr %q) {
  call void @with_added(i1 %c, i64 %n, ptr %q)
  call void @with_each_lane(i1 %c, i64 %n, ptr %q)
  call void @with_element(i1 %c, i64 %n, ptr %q)
  call void @with_field(i1 %c, i64 %n, ptr %q)
  call void @with_narrow(i1 %c, i64 %n, ptr %q)
  call void @with_managed(i1 %c, i64 %n, ptr %q)
  call void @with_result(i1 %c, i64 %n, ptr %q)
  call void @with_result_of_call(i1 %c, i64 %n, ptr %q)
  call void @with_also_read(i1 %c, i64 %n, ptr %q)
  call void @with_largest(i1 %c, i64 %n, ptr %q)
  call void @with_ordered(i1 %c, i64 %n, ptr %q)
  call void @with_volatile_sum(i1 %c, i64 %n, ptr %q)
  call void @with_short(i1 %c, i64 %n, ptr %q)
  call void @with_stored(i1 %c, i64 %n, ptr %q)
  call void @with_address_stored(i1 %c, i64 %n, ptr %q)
  call void @with_handed_on(i1 %c, i64 %n, ptr %q)
  call void @with_chosen(i1 %c, i64 %n, ptr %q)
  call void @with_number(i1 %c, i64 %n, ptr %q)
  call void @with_own_address(i1 %c, i64 %n, ptr %q)
  call void @with_own_address_by_call(i1 %c, i64 %n, ptr %q)
  call void @with_index(i1 %c, i64 %n, ptr %q)
  call void @with_managed_read(i1 %c, i64 %n, ptr %q)
  call void @with_managed_pointer(i1 %c, i64 %n, ptr %q)
  ret void
}

define internal void @with_added(i1 %c, i64 %n, ptr %q) {
  %a = call i64 @_ZN7luthier10sAtomicAddImEET_PS1_S1_(ptr addrspacecast (ptr addrspace(1) @added to ptr), i64 1)
  ret void
}

define internal void @with_each_lane(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @each_lane, i64 %n syncscope("agent") monotonic, align 8
  ret void
}

define internal void @with_element(i1 %c, i64 %n, ptr %q) {
  %p = getelementptr inbounds i64, ptr addrspace(1) @element, i64 %n
  %g = addrspacecast ptr addrspace(1) %p to ptr
  %a = call i64 @_ZN7luthier10sAtomicAddImEET_PS1_S1_(ptr %g, i64 %n)
  ret void
}

define internal void @with_field(i1 %c, i64 %n, ptr %q) {
  %a = call i64 @_ZN7luthier10sAtomicAddImEET_PS1_S1_(ptr getelementptr (i8, ptr addrspacecast (ptr addrspace(1) @field to ptr), i64 8), i64 %n)
  ret void
}

define internal void @with_narrow(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @narrow, i32 5 monotonic, align 4
  ret void
}

define internal void @with_managed(i1 %c, i64 %n, ptr %q) {
  %p = load ptr addrspace(1), ptr addrspace(1) @managed, align 8
  %a = atomicrmw add ptr addrspace(1) %p, i64 5 monotonic, align 8
  ret void
}

define internal void @with_result(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @result, i64 5 monotonic, align 8
  store i64 %a, ptr %q
  ret void
}

define internal void @with_result_of_call(i1 %c, i64 %n, ptr %q) {
  %a = call i64 @_ZN7luthier10sAtomicAddImEET_PS1_S1_(ptr addrspacecast (ptr addrspace(1) @result_of_call to ptr), i64 1)
  store i64 %a, ptr %q
  ret void
}

define internal void @with_also_read(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @also_read, i64 5 monotonic, align 8
  %b = load i64, ptr addrspace(1) @also_read, align 8
  ret void
}

define internal void @with_largest(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw umax ptr addrspace(1) @largest, i64 5 monotonic, align 8
  ret void
}

define internal void @with_ordered(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @ordered, i64 5 seq_cst, align 8
  ret void
}

define internal void @with_volatile_sum(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw volatile add ptr addrspace(1) @volatile_sum, i64 5 monotonic, align 8
  ret void
}

define internal void @with_short(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @short, i16 5 monotonic, align 2
  ret void
}

define internal void @with_stored(i1 %c, i64 %n, ptr %q) {
  store i64 0, ptr addrspace(1) @stored, align 8
  ret void
}

define internal void @with_address_stored(i1 %c, i64 %n, ptr %q) {
  store ptr addrspace(1) @address_stored, ptr %q, align 8
  ret void
}

define internal void @with_handed_on(i1 %c, i64 %n, ptr %q) {
  call void @other(ptr addrspace(1) @handed_on)
  ret void
}

define internal void @with_chosen(i1 %c, i64 %n, ptr %q) {
  %p = select i1 %c, ptr addrspace(1) @chosen, ptr addrspace(1) null
  %a = atomicrmw add ptr addrspace(1) %p, i64 5 monotonic, align 8
  ret void
}

define internal void @with_number(i1 %c, i64 %n, ptr %q) {
  %p = ptrtoint ptr addrspace(1) @number to i64
  ret void
}

define internal void @with_own_address(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @own_address, i64 ptrtoint (ptr addrspace(1) @own_address to i64) monotonic, align 8
  ret void
}

define internal void @with_own_address_by_call(i1 %c, i64 %n, ptr %q) {
  %a = call i64 @_ZN7luthier10sAtomicAddImEET_PS1_S1_(ptr addrspacecast (ptr addrspace(1) @own_address_by_call to ptr), i64 ptrtoint (ptr addrspace(1) @own_address_by_call to i64))
  ret void
}

define internal void @with_index(i1 %c, i64 %n, ptr %q) {
  %p = getelementptr i64, ptr %q, i64 ptrtoint (ptr addrspace(1) @index to i64)
  ret void
}

define internal void @with_managed_read(i1 %c, i64 %n, ptr %q) {
  %p = load ptr addrspace(1), ptr addrspace(1) @managed_read, align 8
  %a = load i64, ptr addrspace(1) %p, align 8
  ret void
}

define internal void @with_managed_pointer(i1 %c, i64 %n, ptr %q) {
  %a = atomicrmw add ptr addrspace(1) @managed_pointer, i64 5 monotonic, align 8
  ret void
}
