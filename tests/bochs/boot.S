# The whole firmware of the emulated machine: from the reset vector straight into
# a Linux kernel that the emulator has already laid in memory. It hands over as
# the PVH boot protocol asks for: flat 32-bit protected mode, paging off, EBX at
# a start-info structure. No BIOS calls, no boot loader, no disk.
#
# Assembled with KERNEL_ENTRY, RAM_END, INITRD and HANDOFF defined; the image is
# 64 KiB and ends at 4 GiB. What changes from run to run lies at HANDOFF: the
# size of the initial file system as 32 bits, then the kernel's command line.

        .equ    BASE, 0xffff0000                # where the image's first byte appears
        .equ    TABLES, 0x1000                  # where the tables are copied to

        .section .text
tables:                                         # hvm_start_info
        .long   0x336ec578, 1, 0, 1             # magic, version, flags, modules
        .quad   TABLES + modules - tables, HANDOFF + 4, 0
        .quad   TABLES + memory - tables
        .long   2, 0                            # ranges of memory
modules:                                        # hvm_modlist_entry
        .quad   INITRD
initrd_size:
        .quad   0, 0, 0
memory:                                         # hvm_memmap_table_entry: address, size, RAM
        .quad   0, 0xa0000
        .long   1, 0
        .quad   0x100000, RAM_END - 0x100000
        .long   1, 0
tables_end:

        .balign 8
gdt:    .quad   0
        .quad   0x00cf9b000000ffff              # 8: code, 0 to 4 GiB
        .quad   0x00cf93000000ffff              # 16: data, 0 to 4 GiB
gdt_end:
gdt_register:
        .word   gdt_end - gdt - 1
        .long   BASE + gdt - tables

        .code16
start:  lgdtl   %cs:(gdt_register - tables)
        mov     %cr0, %eax
        or      $1, %al
        mov     %eax, %cr0
        ljmpl   $8, $(BASE + flat - tables)

        .code32
flat:   mov     $16, %eax
        mov     %eax, %ds
        mov     %eax, %es
        mov     %eax, %ss
        cld
        mov     $(BASE), %esi
        mov     $TABLES, %edi
        mov     $(tables_end - tables), %ecx
        rep movsb
        mov     HANDOFF, %eax
        mov     %eax, TABLES + initrd_size - tables
        mov     $TABLES, %ebx
        mov     $KERNEL_ENTRY, %eax
        jmp     *%eax

        .org    0xfff0                          # the reset vector
        .code16
        jmp     start
        .org    0x10000
