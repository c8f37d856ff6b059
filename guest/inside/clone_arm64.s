#include "textflag.h"

// func cloneOn(flags, stack uintptr, s *spawn) (pid, errno uintptr)
//
// The child begins at the top of another stack, in life, and never returns.
TEXT ·cloneOn(SB), NOSPLIT|NOFRAME, $0-40
	MOVD flags+0(FP), R0
	MOVD stack+8(FP), R1
	MOVD s+16(FP), R19
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8
	SVC
	CBZ R0, child
	MOVD ZR, R1
	CMN $4095, R0
	BCC done
	NEG R0, R1
	MOVD ZR, R0
done:
	MOVD R0, pid+24(FP)
	MOVD R1, errno+32(FP)
	RET
child:
	MOVD ZR, R29
	SUB $32, RSP
	MOVD R19, 8(RSP)
	CALL ·life(SB)
	BRK
	RET


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
