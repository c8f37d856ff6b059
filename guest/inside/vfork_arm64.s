#include "textflag.h"

// func vfork(flags uintptr) (pid, errno uintptr)
//
// Child and parent share the stack, and the child runs first. The return
// address is in the link register, so that the child cannot overwrite it.
TEXT ·vfork(SB), NOSPLIT|NOFRAME, $0-24
	MOVD flags+0(FP), R0
	MOVD ZR, R1
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8
	SVC
	MOVD ZR, R1
	CMN $4095, R0
	BCC done
	NEG R0, R1
	MOVD ZR, R0
done:
	MOVD R0, pid+8(FP)
	MOVD R1, errno+16(FP)
	RET
