"""Tables of image tiles: the bits of the coordinates that form each bit of an element's offset in its block.

Source: addresses of elements computed by ROCr 7's AddrLib (runtime/hsa-runtime/image/addrlib) with the settings of each
processor's driver (GB_ADDR_CONFIG). Each table was checked against AddrLib with 300 random elements of images of other
sizes. ROCr chooses among these modes (Addr2GetPreferredSurfaceSetting, Addr3GetPossibleSwizzleModes); the number of a
mode means different tiles on each generation. AMD's rocjitsu agrees for gfx1100 and gfx1201
(vm/amdgpu/image_address.h).

A table begins with a line for each mode: its SW_MODE and the processors that have it. Five lines follow, for elements
of 1, 2, 4, 8 and 16 bytes. A line has the logarithms of a block's width, height and depth, and then, from the lowest
address bit, the coordinate bits to exclusive-or; ``b`` is a bit of the byte in the element. Modes whose blocks have a
depth are for three-dimensional images; other modes store each plane separately.

One line in place of five is that for elements of 1 byte, with the letter in `LOW_BITS` of its lowest eight address bits
in front. An element twice as large halves an extent of the block: of planes, the height, width, height and width in
turn; of volumes, the width, depth, height and width. The higher address bits use coordinate bits lower by as much.
"""

LOW_BITS = """
A x0 x1 x2 y1 y0 y2 x3 y3
b x0 x1 x2 y0 y1 y2 x3
b b x0 x1 y0 x2 y1 y2
b b b x0 y0 x1 x2 y1
b b b b x0 y0 x1 y1
B x0 y0 x1 y1 z0 z1 x2 z2
b x0 y0 x1 y1 z0 z1 z2
b b x0 y0 x1 z0 y1 z1
b b b x0 y0 z0 x1 z1
b b b b x0 y0 z0 z1
C x0 x1 x2 y1 y0 y2 x3 y3
b x0 x1 x2 y0 y1 y2 x3
b b x0 x1 y0 y1 y2 x2
b b b x0 y0 x1 x2 y1
b b b b x0 y0 x1 y1
D x0 x1 z0 y0 z1 y1 x2 z2
b x0 z0 y0 z1 y1 x1 z2
b b x0 y0 z0 y1 x1 z1
b b b x0 z0 y0 x1 z1
b b b b z0 y0 x0 z1
E x0 x1 x2 y1 y0 y2 x3 y3
b x0 x1 x2 y0 y1 y2 x3
b b x0 x1 y0 y1 x2 y2
b b b x0 y0 x1 x2 y1
b b b b x0 y0 x1 y1
F x0 x1 y0 x2 y1 y2 x3 y3
b x0 y0 x1 y1 x2 y2 x3
b b x0 y0 x1 y1 x2 y2
b b b x0 y0 x1 x2 y1
b b b b x0 y0 x1 y1
G x0 x1 z0 y0 y1 z1 x2 z2
b x0 z0 y0 x1 z1 y1 z2
b b x0 y0 x1 z0 y1 z1
b b b x0 y0 z0 x1 z1
b b b b x0 z0 y0 z1
"""
"""Lowest eight address bits for elements of 1, 2, 4, 8 and 16 bytes."""

TABLES = """
22 gfx900 gfx906 gfx908 gfx90a
A 660 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
26 gfx900 gfx906 gfx908 gfx90a
A 880 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0 x9^y6^z7 x6^y9^z6 x8^y7^z5 x7^y8^z4
20 gfx900 gfx906 gfx908 gfx90a
B 444 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
24 gfx900 gfx906 gfx908 gfx90a
B 655 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4^y7^z7 x7^y6^z4 x6^y4^z6 x5^y5^z5
22 gfx902 gfx90c
A 660 x5^y4^z1 x4^y5^z0 y5 x5
26 gfx902 gfx90c
A 880 x5^y4^z1 x4^y5^z0 y5 x5 y6 x6 y7 x7
20 gfx902 gfx90c
B 444 x4^y2^z4 x3^y3^z3 z3 y3
24 gfx902 gfx90c
B 655 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5
22 gfx904
A 660 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5^y6^z3
26 gfx904
A 880 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5^y9^z6 x8^y6^z5 x6^y8^z4 x7^y7^z3 x7
20 gfx904
B 444 x5^y2^z5 x3^y4^z4 x4^y3^z3 x4^y3^z4
24 gfx904
B 655 x5^y2^z5 x3^y4^z4 x4^y3^z3 x7^y3^z7 x4^y6^z6 x6^y5^z4 x5^y4^z5 x5
22 gfx909
A 660 x4^y4^z0 x4^y7^z3 x6^y5^z2 x5^y6^z1
26 gfx909
A 880 x4^y4^z0 x4^y7^z3 x6^y5^z2 x5^y6^z1 y6 x6 y7 x7
20 gfx909
B 444 x3^y2^z3 x3^y5^z5 x5^y4^z3 x4^y3^z4
24 gfx909
B 655 x3^y2^z3 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5
2 gfx1010 gfx1011 gfx1012 gfx1013
C 440
22 gfx1010 gfx1011
C 660 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
27 gfx1010 gfx1011
880 x0 x1 x2 y1 y0 y2 x3 y4 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y6 x6 y7 x7
870 b x0 x1 x2 y0 y1 y2 x3 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y4 x6 y6 x7
770 b b x0 x1 y0 y1 y2 x2 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y3 x4 y6 x6
760 b b b x0 y0 x1 x2 y1 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y2 x3 y4 x6
660 b b b b x0 y0 x1 y1 x3^y3^z3 x4^y4^z2 x6^y5^z1 x5^y6^z0 y2 x2 y3 x4
21 gfx1010 gfx1011 gfx1030
D 444 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
25 gfx1010 gfx1011 gfx1030
D 655 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5
22 gfx1012 gfx1013
C 660 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5
27 gfx1012 gfx1013
880 x0 x1 x2 y1 y0 y2 x3 y4 x3^y3^z2 x4^y4^z1 x5^y5^z0 x5 y6 x6 y7 x7
870 b x0 x1 x2 y0 y1 y2 x3 x3^y3^z2 x4^y4^z1 x5^y5^z0 x4 y5 x6 y6 x7
770 b b x0 x1 y0 y1 y2 x2 x3^y3^z2 x4^y4^z1 x5^y5^z0 x3 y4 x5 y6 x6
760 b b b x0 y0 x1 x2 y1 x3^y3^z2 x4^y4^z1 x5^y5^z0 x3 y2 x4 y5 x6
660 b b b b x0 y0 x1 y1 x3^y3^z2 x4^y4^z1 x5^y5^z0 x2 y2 x3 y4 x5
21 gfx1012 gfx1013 gfx1031 gfx1032
D 444 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3
25 gfx1012 gfx1013 gfx1031 gfx1032
D 655 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3 x4 z4 y4 x5
2 gfx1030 gfx1031 gfx1032 gfx1033 gfx1034 gfx1035 gfx1036
E 440
22 gfx1030
E 660 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
27 gfx1030
880 x0 x1 x2 x3 y0 y1 y2 y3 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 x6 x7 x8^y7 x6^y6^z0
870 b x0 x1 x2 y0 y1 y2 x3 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y3 x6 x7^y7 x6^y6^z0
770 b b x0 x1 y0 y1 x2 y2 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 x3 y3 x6^y7 x6^y6^z0
760 b b b x0 y0 x1 x2 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y2 x3 x7^y3 x6^y6^z0
660 b b b b x0 y0 x1 y1 x8^y4^y8 x4^y4^z2 x7^y5^z1 x5^y7^z0 x2 x3 x6^y3 x6^y2^y6
22 gfx1031 gfx1032
E 660 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5
27 gfx1031 gfx1032
880 x0 x1 x2 x3 y0 y1 y2 y3 x7^y4^y7 x4^y4^z2 x6^y5^z1 x6 y6 x7^y8 x8^y7 x5^y6^z0
870 b x0 x1 x2 y0 y1 y2 x3 x7^y4^y7 x4^y4^z2 x6^y5^z1 y3 x6 x7^y7 x8^y6 x5^y6^z0
770 b b x0 x1 y0 y1 x2 y2 x7^y4^y7 x4^y4^z2 x6^y5^z1 x3 y3 x6^y7 x7^y6 x5^y6^z0
760 b b b x0 y0 x1 x2 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 y2 x3 x7^y3 x6^y6 x5^y6^z0
660 b b b b x0 y0 x1 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 x2 y2 x6^y3 x3^y6 x5^y6^z0
22 gfx1033 gfx1034 gfx1035
E 660 x5^y4^z1 x4^y5^z0 y5 x5
27 gfx1033 gfx1034 gfx1035
880 x0 x1 x2 x3 y0 y1 y2 y3 x6^y4^y6 x4^y4^z1 x5 x6 x9^y6 x7^y8 x8^y7 x5^y5^z0
870 b x0 x1 x2 y0 y1 y2 x3 x6^y4^y6 x4^y4^z1 y3 x5 x6^y8 x8^y6 x7^y7 x5^y5^z0
770 b b x0 x1 y0 y1 x2 y2 x6^y4^y6 x4^y4^z1 x3 y3 x5^y8 x6^y7 x7^y6 x5^y5^z0
760 b b b x0 y0 x1 x2 y1 x6^y4^y6 x4^y4^z1 y2 x3 x7^y3 x5^y7 x6^y6 x5^y5^z0
660 b b b b x0 y0 x1 y1 x6^y4^y6 x4^y4^z1 x2 y2 x3^y7 x6^y3 x5^y6 x5^y5^z0
21 gfx1033 gfx1034 gfx1035
D 444 x4^y2^z4 x3^y3^z3 z3 y3
25 gfx1033 gfx1034 gfx1035
D 655 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5
22 gfx1036
E 660 x4^y4^z0 x4 y5 x5
27 gfx1036
880 x0 x1 x2 x3 y0 y1 y2 y3 x4^y4^z0 y4 x5 x10^y5 x6^y9 x9^y6 x7^y8 x8^y7
870 b x0 x1 x2 y0 y1 y2 x3 x4^y4^z0 y3 y4 x5^y9 x6^y8 x9^y5 x7^y7 x8^y6
770 b b x0 x1 y0 y1 x2 y2 x4^y4^z0 x3 y3 x9^y4 x5^y8 x8^y5 x6^y7 x7^y6
760 b b b x0 y0 x1 x2 y1 x4^y4^z0 y2 x3 x9^y3 x5^y7 x8^y4 x6^y6 x7^y5
660 b b b b x0 y0 x1 y1 x4^y4^z0 x2 y2 x8^y3 x3^y7 x7^y4 x5^y6 x6^y5
21 gfx1036
D 444 x3^y2^z3 x3 z3 y3
25 gfx1036
D 655 x3^y2^z3 x3 z3 y3 x4 z4 y4 x5
2 gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
1 gfx1200 gfx1201
F 440
22 gfx1100 gfx1101
F 660 x7^y4^z3 x4^y7^z2 x6^y5^z1 x5^y6^z0
24 gfx1100
27 gfx1100
880 x0 x1 y0 x2 y1 y2 x3 y3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x7 y7 x6^y7
870 b x0 y0 x1 y1 x2 y2 x3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 y3 x7 x6^y7
770 b b x0 y0 x1 y1 x2 y2 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x3 y3 x6^y7
760 b b b x0 y0 x1 x2 y1 x9^y4^y9 x4^y4^z3 x8^y5^z2 x5^y8^z1 x7^y2^y6 x3 y3 x6^y7^z0
660 b b b b x0 y0 x1 y1 x9^y4^y9 x4^y4^z2 x8^y5^z1 x5^y8^z0 x7^y2^y6 x3 y3 x2^x6^y7
28 gfx1100
31 gfx1100
990 x0 x1 y0 x2 y1 y2 x3 y3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x7 y7 x8^y9 x9^y8 x6^y7
980 b x0 y0 x1 y1 x2 y2 x3 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 y3 x7 x8^y8 x9^y7 x6^y7
880 b b x0 y0 x1 y1 x2 y2 x9^y4^y9 x4^y4^z1 x8^y5^z0 x5^y8 x7^y6 x3 y3 x7^y8 x8^y7 x6^y7
870 b b b x0 y0 x1 x2 y1 x9^y4^y9 x4^y4^z4 x8^y5^z3 x5^y8^z2 x7^y6^z1 y2 x3 x8^y3 x7^y7 x6^y7^z0
770 b b b b x0 y0 x1 y1 x9^y4^y9 x4^y4^z4 x8^y5^z3 x5^y8^z2 x7^y6^z1 x2 y2 x7^y3 x3^y7 x6^y7^z0
21 gfx1100 gfx1101
G 444 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4
25 gfx1100
G 655 x7^y2^z7 x3^y6^z6 x6^y5^z3 x5^y3^z5 x4^y4^z4 z4 y4 x5
29 gfx1100
G 666 x7^y2^z7 x3^y6^z6 x6^y5^z3 x5^y3^z5 x4^y4^z4 z4 y4 x5 z5 y5
24 gfx1101
27 gfx1101
880 x0 x1 y0 x2 y1 y2 x3 y3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x6 x7 x8^y7 x6^y6
870 b x0 y0 x1 y1 x2 y2 x3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 y3 x6 x7^y7 x6^y6
770 b b x0 y0 x1 y1 x2 y2 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x3 y3 x6^y7 x6^y6
760 b b b x0 y0 x1 x2 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y2 x3 x7^y3 x6^y6^z0
660 b b b b x0 y0 x1 y1 x8^y4^y8 x4^y4^z2 x7^y5^z1 x5^y7^z0 x2 x3 x6^y3 x6^y2^y6
28 gfx1101
31 gfx1101
990 x0 x1 y0 x2 y1 y2 x3 y3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x6 x7 x10^y7 x8^y9 x9^y8 x6^y6
980 b x0 y0 x1 y1 x2 y2 x3 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 y3 x6 x7^y9 x9^y7 x8^y8 x6^y6
880 b b x0 y0 x1 y1 x2 y2 x8^y4^y8 x4^y4^z1 x7^y5^z0 x5^y7 x3 y3 x6^y9 x7^y8 x8^y7 x6^y6
870 b b b x0 y0 x1 x2 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 y2 x3 x8^y3 x6^y8 x7^y7 x6^y6^z0
770 b b b b x0 y0 x1 y1 x8^y4^y8 x4^y4^z3 x7^y5^z2 x5^y7^z1 x2 y2 x3^y8 x7^y3 x6^y7 x6^y6^z0
25 gfx1101
G 655 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5
29 gfx1101
G 666 x6^y2^z6 x3^y5^z5 x5^y4^z3 x4^y3^z4 x4 z4 y4 x5 z5 y5
22 gfx1102
F 660 x6^y4^z2 x4^y6^z1 x5^y5^z0 x5
24 gfx1102
27 gfx1102
880 x0 x1 y0 x2 y1 y2 x3 y3 x7^y4^y7 x4^y4^z1 x6^y5^z0 x6 y6 x7^y8 x8^y7 x5^y6
870 b x0 y0 x1 y1 x2 y2 x3 x7^y4^y7 x4^y4^z1 x6^y5^z0 y3 x6 x7^y7 x8^y6 x5^y6
770 b b x0 y0 x1 y1 x2 y2 x7^y4^y7 x4^y4^z1 x6^y5^z0 x3 y3 x6^y7 x7^y6 x5^y6
760 b b b x0 y0 x1 x2 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 y2 x3 x7^y3 x6^y6 x5^y6^z0
660 b b b b x0 y0 x1 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 x2 y2 x6^y3 x3^y6 x5^y6^z0
28 gfx1102
31 gfx1102
990 x0 x1 y0 x2 y1 y2 x3 y3 x7^y4^y7 x4^y4^z1 x6^y5^z0 x6 y6 x7^y10 x10^y7 x8^y9 x9^y8 x5^y6
980 b x0 y0 x1 y1 x2 y2 x3 x7^y4^y7 x4^y4^z1 x6^y5^z0 y3 x6 x7^y9 x10^y6 x8^y8 x9^y7 x5^y6
880 b b x0 y0 x1 y1 x2 y2 x7^y4^y7 x4^y4^z1 x6^y5^z0 x3 y3 x6^y9 x9^y6 x7^y8 x8^y7 x5^y6
870 b b b x0 y0 x1 x2 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 y2 x3 x9^y3 x6^y8 x7^y7 x8^y6 x5^y6^z0
770 b b b b x0 y0 x1 y1 x7^y4^y7 x4^y4^z2 x6^y5^z1 x2 y2 x8^y3 x3^y8 x6^y7 x7^y6 x5^y6^z0
21 gfx1102
G 444 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3
25 gfx1102
G 655 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3 x4 z4 y4 x5
29 gfx1102
G 666 x5^y2^z5 x3^y4^z4 x4^y3^z3 y3 x4 z4 y4 x5 z5 y5
22 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
F 660 x5^y4^z1 x4^y5^z0 y5 x5
24 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
27 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
880 x0 x1 y0 x2 y1 y2 x3 y3 x6^y4^y6 x4^y4^z1 x5 x6 x9^y6 x7^y8 x8^y7 x5^y5^z0
870 b x0 y0 x1 y1 x2 y2 x3 x6^y4^y6 x4^y4^z1 y3 x5 x6^y8 x8^y6 x7^y7 x5^y5^z0
770 b b x0 y0 x1 y1 x2 y2 x6^y4^y6 x4^y4^z1 x3 y3 x5^y8 x6^y7 x7^y6 x5^y5^z0
760 b b b x0 y0 x1 x2 y1 x6^y4^y6 x4^y4^z1 y2 x3 x7^y3 x5^y7 x6^y6 x5^y5^z0
660 b b b b x0 y0 x1 y1 x6^y4^y6 x4^y4^z1 x2 y2 x3^y7 x6^y3 x5^y6 x5^y5^z0
28 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
31 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
990 x0 x1 y0 x2 y1 y2 x3 y3 x6^y4^y6 x4^y4^z1 x5 x6 x10^y6 x7^y9 x9^y7 x8^y8 y8 x5^y5^z0
980 b x0 y0 x1 y1 x2 y2 x3 x6^y4^y6 x4^y4^z1 y3 x5 x6^y9 x9^y6 x7^y8 x8^y7 x8 x5^y5^z0
880 b b x0 y0 x1 y1 x2 y2 x6^y4^y6 x4^y4^z1 x3 y3 x5^y9 x6^y8 x8^y6 x7^y7 y7 x5^y5^z0
870 b b b x0 y0 x1 x2 y1 x6^y4^y6 x4^y4^z1 y2 x3 x8^y3 x5^y8 x6^y7 x7^y6 x7 x5^y5^z0
770 b b b b x0 y0 x1 y1 x6^y4^y6 x4^y4^z1 x2 y2 x3^y8 x7^y3 x5^y7 x6^y6 y6 x5^y5^z0
21 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
G 444 x4^y2^z4 x3^y3^z3 z3 y3
25 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
G 655 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5
29 gfx1103 gfx1150 gfx1151 gfx1152 gfx1153
G 666 x4^y2^z4 x3^y3^z3 z3 y3 x4 z4 y4 x5 z5 y5
2 gfx1200 gfx1201
F 660 y4 x4 y5 x5
3 gfx1200 gfx1201
F 880 y4 x4 y5 x5 y6 x6 y7 x7
4 gfx1200 gfx1201
F 990 y4 x4 y5 x5 y6 x6 y7 x7 y8 x8
5 gfx1200 gfx1201
G 444 y2 x3 z3 y3
6 gfx1200 gfx1201
G 655 y2 x3 z3 y3 x4 z4 y4 x5
7 gfx1200 gfx1201
G 666 y2 x3 z3 y3 x4 z4 y4 x5 z5 y5
"""
