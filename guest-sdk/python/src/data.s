# The library and the time zones, as freeze.py writes them.
	.section .rodata.frozen_data,"",@
	.globl frozen_data
	.p2align 4
	.type frozen_data,@object
frozen_data:
	.incbin "data.bin"
.Lend:
	.size frozen_data, .Lend-frozen_data
