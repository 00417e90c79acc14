"""Tables of tiles of images: which bits of the coordinates make which bit of an element's place in its block.

Source: AddrLib as ROCr 7 has it (runtime/hsa-runtime/image/addrlib), asked for the addresses of elements with the
settings that each processor's driver has (GB_ADDR_CONFIG). Each table gives 300 random elements of images of other
sizes the address that AddrLib gave them. ROCr chooses among these modes (Addr2GetPreferredSurfaceSetting,
Addr3GetPossibleSwizzleModes), whose numbers mean other tiles on each generation. What AMD's rocjitsu has for gfx1100
and gfx1201 (vm/amdgpu/image_address.h) agrees.

A table begins with its processors. For each SW_MODE, or two that are equal, five lines follow, for elements of 1, 2, 4,
8 and 16 bytes. A line has the logarithms of a block's width, height and depth, and from the lowest address bit on what
is exclusive-ored; ``b`` is one of a byte in the element. Modes whose blocks have a depth are for images of three
dimensions; with other modes each plane lies for itself.
"""

TABLES = """
gfx900 gfx906 gfx908 gfx90a
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
650 b x0 x1 x2 y0 y1 y2 x3 x7^y3^z3 x4^y6^z2 x6^y4^z1 x5^y5^z0
550 b b x0 x1 y0 x2 y1 y2 x6^y3^z3 x3^y6^z2 x5^y4^z1 x4^y5^z0
540 b b b x0 y0 x1 x2 y1 x6^y2^z3 x3^y5^z2 x5^y3^z1 x4^y4^z0
440 b b b b x0 y0 x1 y1 x5^y2^z3 x2^y5^z2 x4^y3^z1 x3^y4^z0
26
880 x0 x1 x2 y1 y0 y2 x3 y3 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0 x9^y6^z7 x6^y9^z6 x8^y7^z5 x7^y8^z4
870 b x0 x1 x2 y0 y1 y2 x3 x7^y3^z3 x4^y6^z2 x6^y4^z1 x5^y5^z0 x9^y5^z7 x6^y8^z6 x8^y6^z5 x7^y7^z4
770 b b x0 x1 y0 x2 y1 y2 x6^y3^z3 x3^y6^z2 x5^y4^z1 x4^y5^z0 x8^y5^z7 x5^y8^z6 x7^y6^z5 x6^y7^z4
760 b b b x0 y0 x1 x2 y1 x6^y2^z3 x3^y5^z2 x5^y3^z1 x4^y4^z0 x8^y4^z7 x5^y7^z6 x7^y5^z5 x6^y6^z4
660 b b b b x0 y0 x1 y1 x5^y2^z3 x2^y5^z2 x4^y3^z1 x3^y4^z0 x7^y4^z7 x4^y7^z6 x6^y5^z5 x5^y6^z4
20
444 x0 y0 x1 y1 z0 z1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
344 b x0 y0 x1 y1 z0 z1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4
343 b b x0 y0 x1 z0 y1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3
333 b b b x0 y0 z0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3
233 b b b b x0 y0 z0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3
24
655 x0 y0 x1 y1 z0 z1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4^y7^z7 x7^y6^z4 x6^y4^z6 x5^y5^z5
555 b x0 y0 x1 y1 z0 z1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4 x3^y7^z7 x6^y6^z4 x5^y4^z6 x4^y5^z5
554 b b x0 y0 x1 z0 y1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3 x3^y7^z6 x6^y6^z3 x5^y4^z5 x4^y5^z4
544 b b b x0 y0 z0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3 x3^y6^z6 x6^y5^z3 x5^y3^z5 x4^y4^z4
444 b b b b x0 y0 z0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3 x2^y6^z6 x5^y5^z3 x4^y3^z5 x3^y4^z4
gfx902 gfx90c
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x5^y4^z1 x4^y5^z0 y5 x5
650 b x0 x1 x2 y0 y1 y2 x3 x5^y3^z1 x4^y4^z0 y4 x5
550 b b x0 x1 y0 x2 y1 y2 x4^y3^z1 x3^y4^z0 y4 x4
540 b b b x0 y0 x1 x2 y1 x4^y2^z1 x3^y3^z0 y3 x4
440 b b b b x0 y0 x1 y1 x3^y2^z1 x2^y3^z0 y3 x3
26
880 x0 x1 x2 y1 y0 y2 x3 y3 x5^y4^z1 x4^y5^z0 y5 x5 y6 x6 y7 x7
870 b x0 x1 x2 y0 y1 y2 x3 x5^y3^z1 x4^y4^z0 y4 x5 y5 x6 y6 x7
770 b b x0 x1 y0 x2 y1 y2 x4^y3^z1 x3^y4^z0 y4 x4 y5 x5 y6 x6
760 b b b x0 y0 x1 x2 y1 x4^y2^z1 x3^y3^z0 y3 x4 y4 x5 y5 x6
660 b b b b x0 y0 x1 y1 x3^y2^z1 x2^y3^z0 y3 x3 y4 x4 y5 x5
20
444 x0 y0 x1 y1 z0 z1 x2 z2 x4^y2^z4 x3^y3^z3 z3 y3
344 b x0 y0 x1 y1 z0 z1 z2 x3^y2^z4 x2^y3^z3 z3 y3
343 b b x0 y0 x1 z0 y1 z1 x3^y2^z3 x2^y3^z2 z2 y3
333 b b b x0 y0 z0 x1 z1 x3^y1^z3 x2^y2^z2 z2 y2
233 b b b b x0 y0 z0 z1 x2^y1^z3 x1^y2^z2 z2 y2
24
655 x0 y0 x1 y1 z0 z1 x2 z2 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5
555 b x0 y0 x1 y1 z0 z1 z2 x3^y2^z4 x2^y3^z3 z3 y3 x3 z4 y4 x4
554 b b x0 y0 x1 z0 y1 z1 x3^y2^z3 x2^y3^z2 z2 y3 x3 z3 y4 x4
544 b b b x0 y0 z0 x1 z1 x3^y1^z3 x2^y2^z2 z2 y2 x3 z3 y3 x4
444 b b b b x0 y0 z0 z1 x2^y1^z3 x1^y2^z2 z2 y2 x2 z3 y3 x3
gfx904
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5^y6^z3
650 b x0 x1 x2 y0 y1 y2 x3 x6^y3^z2 x4^y5^z1 x5^y4^z0 x5^y5^z3
550 b b x0 x1 y0 x2 y1 y2 x5^y3^z2 x3^y5^z1 x4^y4^z0 x4^y5^z3
540 b b b x0 y0 x1 x2 y1 x5^y2^z2 x3^y4^z1 x4^y3^z0 x4^y4^z3
440 b b b b x0 y0 x1 y1 x4^y2^z2 x2^y4^z1 x3^y3^z0 x3^y4^z3
26
880 x0 x1 x2 y1 y0 y2 x3 y3 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5^y9^z6 x8^y6^z5 x6^y8^z4 x7^y7^z3 x7
870 b x0 x1 x2 y0 y1 y2 x3 x6^y3^z2 x4^y5^z1 x5^y4^z0 x5^y8^z6 x8^y5^z5 x6^y7^z4 x7^y6^z3 x7
770 b b x0 x1 y0 x2 y1 y2 x5^y3^z2 x3^y5^z1 x4^y4^z0 x4^y8^z6 x7^y5^z5 x5^y7^z4 x6^y6^z3 x6
760 b b b x0 y0 x1 x2 y1 x5^y2^z2 x3^y4^z1 x4^y3^z0 x4^y7^z6 x7^y4^z5 x5^y6^z4 x6^y5^z3 x6
660 b b b b x0 y0 x1 y1 x4^y2^z2 x2^y4^z1 x3^y3^z0 x3^y7^z6 x6^y4^z5 x4^y6^z4 x5^y5^z3 x5
20
444 x0 y0 x1 y1 z0 z1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 x4^y3^z4
344 b x0 y0 x1 y1 z0 z1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 x3^y3^z4
343 b b x0 y0 x1 z0 y1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 x3^y3^z3
333 b b b x0 y0 z0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 x3^y2^z3
233 b b b b x0 y0 z0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 x2^y2^z3
24
655 x0 y0 x1 y1 z0 z1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 x7^y3^z7 x4^y6^z6 x6^y5^z4 x5^y4^z5 x5
555 b x0 y0 x1 y1 z0 z1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 x6^y3^z7 x3^y6^z6 x5^y5^z4 x4^y4^z5 x4
554 b b x0 y0 x1 z0 y1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 x6^y3^z6 x3^y6^z5 x5^y5^z3 x4^y4^z4 x4
544 b b b x0 y0 z0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4
444 b b b b x0 y0 z0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4 x3
gfx909
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x4^y4^z0 x4^y7^z3 x6^y5^z2 x5^y6^z1
650 b x0 x1 x2 y0 y1 y2 x3 x4^y3^z0 x4^y6^z3 x6^y4^z2 x5^y5^z1
550 b b x0 x1 y0 x2 y1 y2 x3^y3^z0 x3^y6^z3 x5^y4^z2 x4^y5^z1
540 b b b x0 y0 x1 x2 y1 x3^y2^z0 x3^y5^z3 x5^y3^z2 x4^y4^z1
440 b b b b x0 y0 x1 y1 x2^y2^z0 x2^y5^z3 x4^y3^z2 x3^y4^z1
26
880 x0 x1 x2 y1 y0 y2 x3 y3 x4^y4^z0 x4^y7^z3 x6^y5^z2 x5^y6^z1 y6 x6 y7 x7
870 b x0 x1 x2 y0 y1 y2 x3 x4^y3^z0 x4^y6^z3 x6^y4^z2 x5^y5^z1 y5 x6 y6 x7
770 b b x0 x1 y0 x2 y1 y2 x3^y3^z0 x3^y6^z3 x5^y4^z2 x4^y5^z1 y5 x5 y6 x6
760 b b b x0 y0 x1 x2 y1 x3^y2^z0 x3^y5^z3 x5^y3^z2 x4^y4^z1 y4 x5 y5 x6
660 b b b b x0 y0 x1 y1 x2^y2^z0 x2^y5^z3 x4^y3^z2 x3^y4^z1 y4 x4 y5 x5
20
444 x0 y0 x1 y1 z0 z1 x2 z2 x3^y2^z3 x3^y5^z5 x5^y4^z3 x4^y3^z4
344 b x0 y0 x1 y1 z0 z1 z2 x2^y2^z3 x2^y5^z5 x4^y4^z3 x3^y3^z4
343 b b x0 y0 x1 z0 y1 z1 x2^y2^z2 x2^y5^z4 x4^y4^z2 x3^y3^z3
333 b b b x0 y0 z0 x1 z1 x2^y1^z2 x2^y4^z4 x4^y3^z2 x3^y2^z3
233 b b b b x0 y0 z0 z1 x1^y1^z2 x1^y4^z4 x3^y3^z2 x2^y2^z3
24
655 x0 y0 x1 y1 z0 z1 x2 z2 x3^y2^z3 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5
555 b x0 y0 x1 y1 z0 z1 z2 x2^y2^z3 x2^y5^z5 x4^y4^z3 x3^y3^z4 x3 z4 y4 x4
554 b b x0 y0 x1 z0 y1 z1 x2^y2^z2 x2^y5^z4 x4^y4^z2 x3^y3^z3 x3 z3 y4 x4
544 b b b x0 y0 z0 x1 z1 x2^y1^z2 x2^y4^z4 x4^y3^z2 x3^y2^z3 x3 z3 y3 x4
444 b b b b x0 y0 z0 z1 x1^y1^z2 x1^y4^z4 x3^y3^z2 x2^y2^z3 x2 z3 y3 x3
gfx1010 gfx1011
2
440 x0 x1 x2 y1 y0 y2 x3 y3
430 b x0 x1 x2 y0 y1 y2 x3
330 b b x0 x1 y0 y1 y2 x2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
650 b x0 x1 x2 y0 y1 y2 x3 x7^y3^z3 x4^y6^z2 x6^y4^z1 x5^y5^z0
550 b b x0 x1 y0 y1 y2 x2 x6^y3^z3 x3^y6^z2 x5^y4^z1 x4^y5^z0
540 b b b x0 y0 x1 x2 y1 x6^y2^z3 x3^y5^z2 x5^y3^z1 x4^y4^z0
440 b b b b x0 y0 x1 y1 x5^y2^z3 x2^y5^z2 x4^y3^z1 x3^y4^z0
27
880 x0 x1 x2 y1 y0 y2 x3 y4 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y6 x6 y7 x7
870 b x0 x1 x2 y0 y1 y2 x3 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y4 x6 y6 x7
770 b b x0 x1 y0 y1 y2 x2 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y3 x4 y6 x6
760 b b b x0 y0 x1 x2 y1 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y2 x3 y4 x6
660 b b b b x0 y0 x1 y1 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y2 x2 y3 x4
21
444 x0 x1 z0 y0 z1 y1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
344 b x0 z0 y0 z1 y1 x1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4
343 b b x0 y0 z0 y1 x1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3
333 b b b x0 z0 y0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3
233 b b b b z0 y0 x0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3
25
655 x0 x1 z0 y0 z1 y1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5
555 b x0 z0 y0 z1 y1 x1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4 x3 z4 y4 x4
554 b b x0 y0 z0 y1 x1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3 x3 z3 y4 x4
544 b b b x0 z0 y0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3 x3 z3 y3 x4
444 b b b b z0 y0 x0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3 x2 z3 y3 x3
gfx1012 gfx1013
2
440 x0 x1 x2 y1 y0 y2 x3 y3
430 b x0 x1 x2 y0 y1 y2 x3
330 b b x0 x1 y0 y1 y2 x2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5
650 b x0 x1 x2 y0 y1 y2 x3 x6^y3^z2 x4^y5^z1 x5^y4^z0 x5
550 b b x0 x1 y0 y1 y2 x2 x5^y3^z2 x3^y5^z1 x4^y4^z0 x4
540 b b b x0 y0 x1 x2 y1 x5^y2^z2 x3^y4^z1 x4^y3^z0 x4
440 b b b b x0 y0 x1 y1 x4^y2^z2 x2^y4^z1 x3^y3^z0 x3
27
880 x0 x1 x2 y1 y0 y2 x3 y4 x3^y3^z2 x4^y4^z1 x5^y5^z0 x5 y6 x6 y7 x7
870 b x0 x1 x2 y0 y1 y2 x3 x3^y3^z2 x4^y4^z1 x5^y5^z0 x4 y5 x6 y6 x7
770 b b x0 x1 y0 y1 y2 x2 x3^y3^z2 x4^y4^z1 x5^y5^z0 x3 y4 x5 y6 x6
760 b b b x0 y0 x1 x2 y1 x3^y3^z2 x4^y4^z1 x5^y5^z0 x3 y2 x4 y5 x6
660 b b b b x0 y0 x1 y1 x3^y3^z2 x4^y4^z1 x5^y5^z0 x2 y2 x3 y4 x5
21
444 x0 x1 z0 y0 z1 y1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3
344 b x0 z0 y0 z1 y1 x1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 y3
343 b b x0 y0 z0 y1 x1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 y3
333 b b b x0 z0 y0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 y2
233 b b b b z0 y0 x0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 y2
25
655 x0 x1 z0 y0 z1 y1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3 x4 z4 y4 x5
555 b x0 z0 y0 z1 y1 x1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 y3 x3 z4 y4 x4
554 b b x0 y0 z0 y1 x1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 y3 x3 z3 y4 x4
544 b b b x0 z0 y0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 y2 x3 z3 y3 x4
444 b b b b z0 y0 x0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 y2 x2 z3 y3 x3
gfx1030
2
440 x0 x1 x2 y1 y0 y2 x3 y3
430 b x0 x1 x2 y0 y1 y2 x3
330 b b x0 x1 y0 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
650 b x0 x1 x2 y0 y1 y2 x3 x7^y3^z3 x4^y6^z2 x6^y4^z1 x5^y5^z0
550 b b x0 x1 y0 y1 x2 y2 x6^y3^z3 x3^y6^z2 x5^y4^z1 x4^y5^z0
540 b b b x0 y0 x1 x2 y1 x6^y2^z3 x3^y5^z2 x5^y3^z1 x4^y4^z0
440 b b b b x0 y0 x1 y1 x5^y2^z3 x2^y5^z2 x4^y3^z1 x3^y4^z0
27
880 x0 x1 x2 x3 y0 y1 y2 y3 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 x6 x7 x8^y7 x6^y6^z0
870 b x0 x1 x2 y0 y1 y2 x3 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y3 x6 x7^y7 x6^y6^z0
770 b b x0 x1 y0 y1 x2 y2 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 x3 y3 x6^y7 x6^y6^z0
760 b b b x0 y0 x1 x2 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y2 x3 x7^y3 x6^y6^z0
660 b b b b x0 y0 x1 y1 x8^y4^y8 x4^y4^z2 x7^y5^z1 x5^y7^z0 x2 x3 x6^y3 x6^y2^y6
21
444 x0 x1 z0 y0 z1 y1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
344 b x0 z0 y0 z1 y1 x1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4
343 b b x0 y0 z0 y1 x1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3
333 b b b x0 z0 y0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3
233 b b b b z0 y0 x0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3
25
655 x0 x1 z0 y0 z1 y1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5
555 b x0 z0 y0 z1 y1 x1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4 x3 z4 y4 x4
554 b b x0 y0 z0 y1 x1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3 x3 z3 y4 x4
544 b b b x0 z0 y0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3 x3 z3 y3 x4
444 b b b b z0 y0 x0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3 x2 z3 y3 x3
gfx1031 gfx1032
2
440 x0 x1 x2 y1 y0 y2 x3 y3
430 b x0 x1 x2 y0 y1 y2 x3
330 b b x0 x1 y0 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5
650 b x0 x1 x2 y0 y1 y2 x3 x6^y3^z2 x4^y5^z1 x5^y4^z0 x5
550 b b x0 x1 y0 y1 x2 y2 x5^y3^z2 x3^y5^z1 x4^y4^z0 x4
540 b b b x0 y0 x1 x2 y1 x5^y2^z2 x3^y4^z1 x4^y3^z0 x4
440 b b b b x0 y0 x1 y1 x4^y2^z2 x2^y4^z1 x3^y3^z0 x3
27
880 x0 x1 x2 x3 y0 y1 y2 y3 x7^y4^y7 x4^y4^z2 x6^y5^z1 x6 y6 x7^y8 x8^y7 x5^y6^z0
870 b x0 x1 x2 y0 y1 y2 x3 x7^y4^y7 x4^y4^z2 x6^y5^z1 y3 x6 x7^y7 x8^y6 x5^y6^z0
770 b b x0 x1 y0 y1 x2 y2 x7^y4^y7 x4^y4^z2 x6^y5^z1 x3 y3 x6^y7 x7^y6 x5^y6^z0
760 b b b x0 y0 x1 x2 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 y2 x3 x7^y3 x6^y6 x5^y6^z0
660 b b b b x0 y0 x1 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 x2 y2 x6^y3 x3^y6 x5^y6^z0
21
444 x0 x1 z0 y0 z1 y1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3
344 b x0 z0 y0 z1 y1 x1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 y3
343 b b x0 y0 z0 y1 x1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 y3
333 b b b x0 z0 y0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 y2
233 b b b b z0 y0 x0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 y2
25
655 x0 x1 z0 y0 z1 y1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3 x4 z4 y4 x5
555 b x0 z0 y0 z1 y1 x1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 y3 x3 z4 y4 x4
554 b b x0 y0 z0 y1 x1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 y3 x3 z3 y4 x4
544 b b b x0 z0 y0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 y2 x3 z3 y3 x4
444 b b b b z0 y0 x0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 y2 x2 z3 y3 x3
gfx1033 gfx1034 gfx1035
2
440 x0 x1 x2 y1 y0 y2 x3 y3
430 b x0 x1 x2 y0 y1 y2 x3
330 b b x0 x1 y0 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x5^y4^z1 x4^y5^z0 y5 x5
650 b x0 x1 x2 y0 y1 y2 x3 x5^y3^z1 x4^y4^z0 y4 x5
550 b b x0 x1 y0 y1 x2 y2 x4^y3^z1 x3^y4^z0 y4 x4
540 b b b x0 y0 x1 x2 y1 x4^y2^z1 x3^y3^z0 y3 x4
440 b b b b x0 y0 x1 y1 x3^y2^z1 x2^y3^z0 y3 x3
27
880 x0 x1 x2 x3 y0 y1 y2 y3 x6^y4^y6 x4^y4^z1 x5 x6 x9^y6 x7^y8 x8^y7 x5^y5^z0
870 b x0 x1 x2 y0 y1 y2 x3 x6^y4^y6 x4^y4^z1 y3 x5 x6^y8 x8^y6 x7^y7 x5^y5^z0
770 b b x0 x1 y0 y1 x2 y2 x6^y4^y6 x4^y4^z1 x3 y3 x5^y8 x6^y7 x7^y6 x5^y5^z0
760 b b b x0 y0 x1 x2 y1 x6^y4^y6 x4^y4^z1 y2 x3 x7^y3 x5^y7 x6^y6 x5^y5^z0
660 b b b b x0 y0 x1 y1 x6^y4^y6 x4^y4^z1 x2 y2 x3^y7 x6^y3 x5^y6 x5^y5^z0
21
444 x0 x1 z0 y0 z1 y1 x2 z2 x4^y2^z4 x3^y3^z3 z3 y3
344 b x0 z0 y0 z1 y1 x1 z2 x3^y2^z4 x2^y3^z3 z3 y3
343 b b x0 y0 z0 y1 x1 z1 x3^y2^z3 x2^y3^z2 z2 y3
333 b b b x0 z0 y0 x1 z1 x3^y1^z3 x2^y2^z2 z2 y2
233 b b b b z0 y0 x0 z1 x2^y1^z3 x1^y2^z2 z2 y2
25
655 x0 x1 z0 y0 z1 y1 x2 z2 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5
555 b x0 z0 y0 z1 y1 x1 z2 x3^y2^z4 x2^y3^z3 z3 y3 x3 z4 y4 x4
554 b b x0 y0 z0 y1 x1 z1 x3^y2^z3 x2^y3^z2 z2 y3 x3 z3 y4 x4
544 b b b x0 z0 y0 x1 z1 x3^y1^z3 x2^y2^z2 z2 y2 x3 z3 y3 x4
444 b b b b z0 y0 x0 z1 x2^y1^z3 x1^y2^z2 z2 y2 x2 z3 y3 x3
gfx1036
2
440 x0 x1 x2 y1 y0 y2 x3 y3
430 b x0 x1 x2 y0 y1 y2 x3
330 b b x0 x1 y0 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 x2 y1 y0 y2 x3 y3 x4^y4^z0 x4 y5 x5
650 b x0 x1 x2 y0 y1 y2 x3 x4^y3^z0 x4 y4 x5
550 b b x0 x1 y0 y1 x2 y2 x3^y3^z0 x3 y4 x4
540 b b b x0 y0 x1 x2 y1 x3^y2^z0 x3 y3 x4
440 b b b b x0 y0 x1 y1 x2^y2^z0 x2 y3 x3
27
880 x0 x1 x2 x3 y0 y1 y2 y3 x4^y4^z0 y4 x5 x10^y5 x6^y9 x9^y6 x7^y8 x8^y7
870 b x0 x1 x2 y0 y1 y2 x3 x4^y4^z0 y3 y4 x5^y9 x6^y8 x9^y5 x7^y7 x8^y6
770 b b x0 x1 y0 y1 x2 y2 x4^y4^z0 x3 y3 x9^y4 x5^y8 x8^y5 x6^y7 x7^y6
760 b b b x0 y0 x1 x2 y1 x4^y4^z0 y2 x3 x9^y3 x5^y7 x8^y4 x6^y6 x7^y5
660 b b b b x0 y0 x1 y1 x4^y4^z0 x2 y2 x8^y3 x3^y7 x7^y4 x5^y6 x6^y5
21
444 x0 x1 z0 y0 z1 y1 x2 z2 x3^y2^z3 x3 z3 y3
344 b x0 z0 y0 z1 y1 x1 z2 x2^y2^z3 x2 z3 y3
343 b b x0 y0 z0 y1 x1 z1 x2^y2^z2 x2 z2 y3
333 b b b x0 z0 y0 x1 z1 x2^y1^z2 x2 z2 y2
233 b b b b z0 y0 x0 z1 x1^y1^z2 x1 z2 y2
25
655 x0 x1 z0 y0 z1 y1 x2 z2 x3^y2^z3 x3 z3 y3 x4 z4 y4 x5
555 b x0 z0 y0 z1 y1 x1 z2 x2^y2^z3 x2 z3 y3 x3 z4 y4 x4
554 b b x0 y0 z0 y1 x1 z1 x2^y2^z2 x2 z2 y3 x3 z3 y4 x4
544 b b b x0 z0 y0 x1 z1 x2^y1^z2 x2 z2 y2 x3 z3 y3 x4
444 b b b b z0 y0 x0 z1 x1^y1^z2 x1 z2 y2 x2 z3 y3 x3
gfx1100
2
440 x0 x1 y0 x2 y1 y2 x3 y3
430 b x0 y0 x1 y1 x2 y2 x3
330 b b x0 y0 x1 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 y0 x2 y1 y2 x3 y3 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
650 b x0 y0 x1 y1 x2 y2 x3 x7^y3^z3 x4^y6^z2 x6^y4^z1 x5^y5^z0
550 b b x0 y0 x1 y1 x2 y2 x6^y3^z3 x3^y6^z2 x5^y4^z1 x4^y5^z0
540 b b b x0 y0 x1 x2 y1 x6^y2^z3 x3^y5^z2 x5^y3^z1 x4^y4^z0
440 b b b b x0 y0 x1 y1 x5^y2^z3 x2^y5^z2 x4^y3^z1 x3^y4^z0
24 27
880 x0 x1 y0 x2 y1 y2 x3 y3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x7 y7 x6^y7
870 b x0 y0 x1 y1 x2 y2 x3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 y3 x7 x6^y7
770 b b x0 y0 x1 y1 x2 y2 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x3 y3 x6^y7
760 b b b x0 y0 x1 x2 y1 x9^y4^y9 x4^y4^z3 x8^y5^z2 x5^y8^z1 x7^y2^y6 x3 y3 x6^y7^z0
660 b b b b x0 y0 x1 y1 x9^y4^y9 x4^y4^z2 x8^y5^z1 x5^y8^z0 x7^y2^y6 x3 y3 x2^x6^y7
28 31
990 x0 x1 y0 x2 y1 y2 x3 y3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x7 y7 x8^y9 x9^y8 x6^y7
980 b x0 y0 x1 y1 x2 y2 x3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 y3 x7 x8^y8 x9^y7 x6^y7
880 b b x0 y0 x1 y1 x2 y2 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x3 y3 x7^y8 x8^y7 x6^y7
870 b b b x0 y0 x1 x2 y1 x9^y4^y9 x4^y4^z4 x8^y5^z3 x5^y8^z2 x7^y6^z1 y2 x3 x8^y3 x7^y7 x6^y7^z0
770 b b b b x0 y0 x1 y1 x9^y4^y9 x4^y4^z4 x8^y5^z3 x5^y8^z2 x7^y6^z1 x2 y2 x7^y3 x3^y7 x6^y7^z0
21
444 x0 x1 z0 y0 y1 z1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
344 b x0 z0 y0 x1 z1 y1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4
343 b b x0 y0 x1 z0 y1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3
333 b b b x0 y0 z0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3
233 b b b b x0 z0 y0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3
25
655 x0 x1 z0 y0 y1 z1 x2 z2 x7^y2^z7 x3^y6^z6 x6^y5^z3 x5^y3^z5 x4^y4^z4 z4 y4 x5
555 b x0 z0 y0 x1 z1 y1 z2 x6^y2^z7 x2^y6^z6 x5^y5^z3 x4^y3^z5 x3^y4^z4 z4 y4 x4
554 b b x0 y0 x1 z0 y1 z1 x6^y2^z6 x2^y6^z5 x5^y5^z2 x4^y3^z4 x3^y4^z3 z3 y4 x4
544 b b b x0 y0 z0 x1 z1 x6^y1^z6 x2^y5^z5 x5^y4^z2 x4^y2^z4 x3^y3^z3 z3 y3 x4
444 b b b b x0 z0 y0 z1 x5^y1^z6 x1^y5^z5 x4^y4^z2 x3^y2^z4 x2^y3^z3 z3 y3 x3
29
666 x0 x1 z0 y0 y1 z1 x2 z2 x7^y2^z7 x3^y6^z6 x6^y5^z3 x5^y3^z5 x4^y4^z4 z4 y4 x5 z5 y5
566 b x0 z0 y0 x1 z1 y1 z2 x6^y2^z7 x2^y6^z6 x5^y5^z3 x4^y3^z5 x3^y4^z4 z4 y4 x4 z5 y5
565 b b x0 y0 x1 z0 y1 z1 x6^y2^z6 x2^y6^z5 x5^y5^z2 x4^y3^z4 x3^y4^z3 z3 y4 x4 z4 y5
555 b b b x0 y0 z0 x1 z1 x6^y1^z6 x2^y5^z5 x5^y4^z2 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4
455 b b b b x0 z0 y0 z1 x5^y1^z6 x1^y5^z5 x4^y4^z2 x3^y2^z4 x2^y3^z3 z3 y3 x3 z4 y4
gfx1101
2
440 x0 x1 y0 x2 y1 y2 x3 y3
430 b x0 y0 x1 y1 x2 y2 x3
330 b b x0 y0 x1 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 y0 x2 y1 y2 x3 y3 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
650 b x0 y0 x1 y1 x2 y2 x3 x7^y3^z3 x4^y6^z2 x6^y4^z1 x5^y5^z0
550 b b x0 y0 x1 y1 x2 y2 x6^y3^z3 x3^y6^z2 x5^y4^z1 x4^y5^z0
540 b b b x0 y0 x1 x2 y1 x6^y2^z3 x3^y5^z2 x5^y3^z1 x4^y4^z0
440 b b b b x0 y0 x1 y1 x5^y2^z3 x2^y5^z2 x4^y3^z1 x3^y4^z0
24 27
880 x0 x1 y0 x2 y1 y2 x3 y3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x6 x7 x8^y7 x6^y6
870 b x0 y0 x1 y1 x2 y2 x3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 y3 x6 x7^y7 x6^y6
770 b b x0 y0 x1 y1 x2 y2 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x3 y3 x6^y7 x6^y6
760 b b b x0 y0 x1 x2 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y2 x3 x7^y3 x6^y6^z0
660 b b b b x0 y0 x1 y1 x8^y4^y8 x4^y4^z2 x7^y5^z1 x5^y7^z0 x2 x3 x6^y3 x6^y2^y6
28 31
990 x0 x1 y0 x2 y1 y2 x3 y3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x6 x7 x10^y7 x8^y9 x9^y8 x6^y6
980 b x0 y0 x1 y1 x2 y2 x3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 y3 x6 x7^y9 x9^y7 x8^y8 x6^y6
880 b b x0 y0 x1 y1 x2 y2 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x3 y3 x6^y9 x7^y8 x8^y7 x6^y6
870 b b b x0 y0 x1 x2 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y2 x3 x8^y3 x6^y8 x7^y7 x6^y6^z0
770 b b b b x0 y0 x1 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 x2 y2 x3^y8 x7^y3 x6^y7 x6^y6^z0
21
444 x0 x1 z0 y0 y1 z1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
344 b x0 z0 y0 x1 z1 y1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4
343 b b x0 y0 x1 z0 y1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3
333 b b b x0 y0 z0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3
233 b b b b x0 z0 y0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3
25
655 x0 x1 z0 y0 y1 z1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5
555 b x0 z0 y0 x1 z1 y1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4 x3 z4 y4 x4
554 b b x0 y0 x1 z0 y1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3 x3 z3 y4 x4
544 b b b x0 y0 z0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3 x3 z3 y3 x4
444 b b b b x0 z0 y0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3 x2 z3 y3 x3
29
666 x0 x1 z0 y0 y1 z1 x2 z2 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5 z5 y5
566 b x0 z0 y0 x1 z1 y1 z2 x5^y2^z6 x2^y5^z5 x4^y4^z3 x3^y3^z4 x3 z4 y4 x4 z5 y5
565 b b x0 y0 x1 z0 y1 z1 x5^y2^z5 x2^y5^z4 x4^y4^z2 x3^y3^z3 x3 z3 y4 x4 z4 y5
555 b b b x0 y0 z0 x1 z1 x5^y1^z5 x2^y4^z4 x4^y3^z2 x3^y2^z3 x3 z3 y3 x4 z4 y4
455 b b b b x0 z0 y0 z1 x4^y1^z5 x1^y4^z4 x3^y3^z2 x2^y2^z3 x2 z3 y3 x3 z4 y4
gfx1102
2
440 x0 x1 y0 x2 y1 y2 x3 y3
430 b x0 y0 x1 y1 x2 y2 x3
330 b b x0 y0 x1 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 y0 x2 y1 y2 x3 y3 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5
650 b x0 y0 x1 y1 x2 y2 x3 x6^y3^z2 x4^y5^z1 x5^y4^z0 x5
550 b b x0 y0 x1 y1 x2 y2 x5^y3^z2 x3^y5^z1 x4^y4^z0 x4
540 b b b x0 y0 x1 x2 y1 x5^y2^z2 x3^y4^z1 x4^y3^z0 x4
440 b b b b x0 y0 x1 y1 x4^y2^z2 x2^y4^z1 x3^y3^z0 x3
24 27
880 x0 x1 y0 x2 y1 y2 x3 y3 x7^y4^y7 x4^y4^z1 x6^y5^z0 x6 y6 x7^y8 x8^y7 x5^y6
870 b x0 y0 x1 y1 x2 y2 x3 x7^y4^y7 x4^y4^z1 x6^y5^z0 y3 x6 x7^y7 x8^y6 x5^y6
770 b b x0 y0 x1 y1 x2 y2 x7^y4^y7 x4^y4^z1 x6^y5^z0 x3 y3 x6^y7 x7^y6 x5^y6
760 b b b x0 y0 x1 x2 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 y2 x3 x7^y3 x6^y6 x5^y6^z0
660 b b b b x0 y0 x1 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 x2 y2 x6^y3 x3^y6 x5^y6^z0
28 31
990 x0 x1 y0 x2 y1 y2 x3 y3 x7^y4^y7 x4^y4^z1 x6^y5^z0 x6 y6 x7^y10 x10^y7 x8^y9 x9^y8 x5^y6
980 b x0 y0 x1 y1 x2 y2 x3 x7^y4^y7 x4^y4^z1 x6^y5^z0 y3 x6 x7^y9 x10^y6 x8^y8 x9^y7 x5^y6
880 b b x0 y0 x1 y1 x2 y2 x7^y4^y7 x4^y4^z1 x6^y5^z0 x3 y3 x6^y9 x9^y6 x7^y8 x8^y7 x5^y6
870 b b b x0 y0 x1 x2 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 y2 x3 x9^y3 x6^y8 x7^y7 x8^y6 x5^y6^z0
770 b b b b x0 y0 x1 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 x2 y2 x8^y3 x3^y8 x6^y7 x7^y6 x5^y6^z0
21
444 x0 x1 z0 y0 y1 z1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3
344 b x0 z0 y0 x1 z1 y1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 y3
343 b b x0 y0 x1 z0 y1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 y3
333 b b b x0 y0 z0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 y2
233 b b b b x0 z0 y0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 y2
25
655 x0 x1 z0 y0 y1 z1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3 x4 z4 y4 x5
555 b x0 z0 y0 x1 z1 y1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 y3 x3 z4 y4 x4
554 b b x0 y0 x1 z0 y1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 y3 x3 z3 y4 x4
544 b b b x0 y0 z0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 y2 x3 z3 y3 x4
444 b b b b x0 z0 y0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 y2 x2 z3 y3 x3
29
666 x0 x1 z0 y0 y1 z1 x2 z2 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3 x4 z4 y4 x5 z5 y5
566 b x0 z0 y0 x1 z1 y1 z2 x4^y2^z5 x2^y4^z4 x3^y3^z3 y3 x3 z4 y4 x4 z5 y5
565 b b x0 y0 x1 z0 y1 z1 x4^y2^z4 x2^y4^z3 x3^y3^z2 y3 x3 z3 y4 x4 z4 y5
555 b b b x0 y0 z0 x1 z1 x4^y1^z4 x2^y3^z3 x3^y2^z2 y2 x3 z3 y3 x4 z4 y4
455 b b b b x0 z0 y0 z1 x3^y1^z4 x1^y3^z3 x2^y2^z2 y2 x2 z3 y3 x3 z4 y4
gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
2
440 x0 x1 y0 x2 y1 y2 x3 y3
430 b x0 y0 x1 y1 x2 y2 x3
330 b b x0 y0 x1 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
22
660 x0 x1 y0 x2 y1 y2 x3 y3 x5^y4^z1 x4^y5^z0 y5 x5
650 b x0 y0 x1 y1 x2 y2 x3 x5^y3^z1 x4^y4^z0 y4 x5
550 b b x0 y0 x1 y1 x2 y2 x4^y3^z1 x3^y4^z0 y4 x4
540 b b b x0 y0 x1 x2 y1 x4^y2^z1 x3^y3^z0 y3 x4
440 b b b b x0 y0 x1 y1 x3^y2^z1 x2^y3^z0 y3 x3
24 27
880 x0 x1 y0 x2 y1 y2 x3 y3 x6^y4^y6 x4^y4^z1 x5 x6 x9^y6 x7^y8 x8^y7 x5^y5^z0
870 b x0 y0 x1 y1 x2 y2 x3 x6^y4^y6 x4^y4^z1 y3 x5 x6^y8 x8^y6 x7^y7 x5^y5^z0
770 b b x0 y0 x1 y1 x2 y2 x6^y4^y6 x4^y4^z1 x3 y3 x5^y8 x6^y7 x7^y6 x5^y5^z0
760 b b b x0 y0 x1 x2 y1 x6^y4^y6 x4^y4^z1 y2 x3 x7^y3 x5^y7 x6^y6 x5^y5^z0
660 b b b b x0 y0 x1 y1 x6^y4^y6 x4^y4^z1 x2 y2 x3^y7 x6^y3 x5^y6 x5^y5^z0
28 31
990 x0 x1 y0 x2 y1 y2 x3 y3 x6^y4^y6 x4^y4^z1 x5 x6 x10^y6 x7^y9 x9^y7 x8^y8 y8 x5^y5^z0
980 b x0 y0 x1 y1 x2 y2 x3 x6^y4^y6 x4^y4^z1 y3 x5 x6^y9 x9^y6 x7^y8 x8^y7 x8 x5^y5^z0
880 b b x0 y0 x1 y1 x2 y2 x6^y4^y6 x4^y4^z1 x3 y3 x5^y9 x6^y8 x8^y6 x7^y7 y7 x5^y5^z0
870 b b b x0 y0 x1 x2 y1 x6^y4^y6 x4^y4^z1 y2 x3 x8^y3 x5^y8 x6^y7 x7^y6 x7 x5^y5^z0
770 b b b b x0 y0 x1 y1 x6^y4^y6 x4^y4^z1 x2 y2 x3^y8 x7^y3 x5^y7 x6^y6 y6 x5^y5^z0
21
444 x0 x1 z0 y0 y1 z1 x2 z2 x4^y2^z4 x3^y3^z3 z3 y3
344 b x0 z0 y0 x1 z1 y1 z2 x3^y2^z4 x2^y3^z3 z3 y3
343 b b x0 y0 x1 z0 y1 z1 x3^y2^z3 x2^y3^z2 z2 y3
333 b b b x0 y0 z0 x1 z1 x3^y1^z3 x2^y2^z2 z2 y2
233 b b b b x0 z0 y0 z1 x2^y1^z3 x1^y2^z2 z2 y2
25
655 x0 x1 z0 y0 y1 z1 x2 z2 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5
555 b x0 z0 y0 x1 z1 y1 z2 x3^y2^z4 x2^y3^z3 z3 y3 x3 z4 y4 x4
554 b b x0 y0 x1 z0 y1 z1 x3^y2^z3 x2^y3^z2 z2 y3 x3 z3 y4 x4
544 b b b x0 y0 z0 x1 z1 x3^y1^z3 x2^y2^z2 z2 y2 x3 z3 y3 x4
444 b b b b x0 z0 y0 z1 x2^y1^z3 x1^y2^z2 z2 y2 x2 z3 y3 x3
29
666 x0 x1 z0 y0 y1 z1 x2 z2 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5 z5 y5
566 b x0 z0 y0 x1 z1 y1 z2 x3^y2^z4 x2^y3^z3 z3 y3 x3 z4 y4 x4 z5 y5
565 b b x0 y0 x1 z0 y1 z1 x3^y2^z3 x2^y3^z2 z2 y3 x3 z3 y4 x4 z4 y5
555 b b b x0 y0 z0 x1 z1 x3^y1^z3 x2^y2^z2 z2 y2 x3 z3 y3 x4 z4 y4
455 b b b b x0 z0 y0 z1 x2^y1^z3 x1^y2^z2 z2 y2 x2 z3 y3 x3 z4 y4
gfx1200 gfx1201
1
440 x0 x1 y0 x2 y1 y2 x3 y3
430 b x0 y0 x1 y1 x2 y2 x3
330 b b x0 y0 x1 y1 x2 y2
320 b b b x0 y0 x1 x2 y1
220 b b b b x0 y0 x1 y1
2
660 x0 x1 y0 x2 y1 y2 x3 y3 y4 x4 y5 x5
650 b x0 y0 x1 y1 x2 y2 x3 y3 x4 y4 x5
550 b b x0 y0 x1 y1 x2 y2 y3 x3 y4 x4
540 b b b x0 y0 x1 x2 y1 y2 x3 y3 x4
440 b b b b x0 y0 x1 y1 y2 x2 y3 x3
3
880 x0 x1 y0 x2 y1 y2 x3 y3 y4 x4 y5 x5 y6 x6 y7 x7
870 b x0 y0 x1 y1 x2 y2 x3 y3 x4 y4 x5 y5 x6 y6 x7
770 b b x0 y0 x1 y1 x2 y2 y3 x3 y4 x4 y5 x5 y6 x6
760 b b b x0 y0 x1 x2 y1 y2 x3 y3 x4 y4 x5 y5 x6
660 b b b b x0 y0 x1 y1 y2 x2 y3 x3 y4 x4 y5 x5
4
990 x0 x1 y0 x2 y1 y2 x3 y3 y4 x4 y5 x5 y6 x6 y7 x7 y8 x8
980 b x0 y0 x1 y1 x2 y2 x3 y3 x4 y4 x5 y5 x6 y6 x7 y7 x8
880 b b x0 y0 x1 y1 x2 y2 y3 x3 y4 x4 y5 x5 y6 x6 y7 x7
870 b b b x0 y0 x1 x2 y1 y2 x3 y3 x4 y4 x5 y5 x6 y6 x7
770 b b b b x0 y0 x1 y1 y2 x2 y3 x3 y4 x4 y5 x5 y6 x6
5
444 x0 x1 z0 y0 y1 z1 x2 z2 y2 x3 z3 y3
344 b x0 z0 y0 x1 z1 y1 z2 y2 x2 z3 y3
343 b b x0 y0 x1 z0 y1 z1 y2 x2 z2 y3
333 b b b x0 y0 z0 x1 z1 y1 x2 z2 y2
233 b b b b x0 z0 y0 z1 y1 x1 z2 y2
6
655 x0 x1 z0 y0 y1 z1 x2 z2 y2 x3 z3 y3 x4 z4 y4 x5
555 b x0 z0 y0 x1 z1 y1 z2 y2 x2 z3 y3 x3 z4 y4 x4
554 b b x0 y0 x1 z0 y1 z1 y2 x2 z2 y3 x3 z3 y4 x4
544 b b b x0 y0 z0 x1 z1 y1 x2 z2 y2 x3 z3 y3 x4
444 b b b b x0 z0 y0 z1 y1 x1 z2 y2 x2 z3 y3 x3
7
666 x0 x1 z0 y0 y1 z1 x2 z2 y2 x3 z3 y3 x4 z4 y4 x5 z5 y5
566 b x0 z0 y0 x1 z1 y1 z2 y2 x2 z3 y3 x3 z4 y4 x4 z5 y5
565 b b x0 y0 x1 z0 y1 z1 y2 x2 z2 y3 x3 z3 y4 x4 z4 y5
555 b b b x0 y0 z0 x1 z1 y1 x2 z2 y2 x3 z3 y3 x4 z4 y4
455 b b b b x0 z0 y0 z1 y1 x1 z2 y2 x2 z3 y3 x3 z4 y4
"""
