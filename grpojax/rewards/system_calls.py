"""The system calls that a program in the sandbox may make, as a filter in the kernel's BPF.

A list of what is allowed, not of what is not: files, memory, processes and threads of its own, clocks, pipes
and pairs of sockets.  So there are no sockets to anywhere (AF_VSOCK is no part of a network namespace), no
keyrings, no System V shared memory, no memory files, no descriptors of other processes or passed between
them, no namespaces, no io_uring.  What is not in the list does not exist: ENOSYS, on which libraries fall
back.
"""

import errno
import platform
import struct

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # AUDIT_ARCH, column of the table
# name, number on x86_64, number on aarch64; "-" where the architecture has no such call
_TABLE = """
  access 21 -, alarm 37 -, arch_prctl 158 -, brk 12 214, capget 125 90, chdir 80 49, chmod 90 -,
  clock_getres 229 114, clock_gettime 228 113, clock_nanosleep 230 115, clone 56 220, close 3 57,
  close_range 436 436, copy_file_range 326 285, creat 85 -, dup 32 23, dup2 33 -, dup3 292 24,
  epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_pwait 281 22, epoll_wait 232 -,
  eventfd 284 -, eventfd2 290 19, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94,
  faccessat 269 48, faccessat2 439 439, fadvise64 221 223, fallocate 285 47, fchdir 81 50, fchmod 91 52,
  fchmodat 268 53, fcntl 72 25, fdatasync 75 83, flock 73 32, fork 57 -, fstat 5 80, fstatfs 138 44,
  fsync 74 82, ftruncate 77 46, futex 202 98, futimesat 261 -, get_robust_list 274 100, getcpu 309 168,
  getcwd 79 17, getdents 78 -, getdents64 217 61, getegid 108 177, geteuid 107 175, getgid 104 176,
  getgroups 115 158, getitimer 36 102, getpeername 52 205, getpgid 121 155, getpgrp 111 -, getpid 39 172,
  getppid 110 173, getpriority 140 141, getrandom 318 278, getresgid 120 150, getresuid 118 148,
  getrlimit 97 163, getrusage 98 165, getsid 124 156, getsockname 51 204, getsockopt 55 209,
  gettid 186 178, gettimeofday 96 169, getuid 102 174, ioctl 16 29, kill 62 129, link 86 -, linkat 265 37,
  lseek 8 62, lstat 6 -, madvise 28 233, membarrier 324 283, mincore 27 232, mkdir 83 -, mkdirat 258 34,
  mlock 149 228, mmap 9 222, mprotect 10 226, mremap 25 216, msync 26 227, munlock 150 229, munmap 11 215,
  nanosleep 35 101, newfstatat 262 79, open 2 -, openat 257 56, pause 34 -, pipe 22 -, pipe2 293 59,
  poll 7 -, ppoll 271 73, prctl 157 167, pread64 17 67, preadv 295 69, prlimit64 302 261, pselect6 270 72,
  pwrite64 18 68, pwritev 296 70, read 0 63, readlink 89 -, readlinkat 267 78, readv 19 65,
  recvfrom 45 207, rename 82 -, renameat 264 38, renameat2 316 276, restart_syscall 219 128, rmdir 84 -,
  rseq 334 293, rt_sigaction 13 134, rt_sigpending 127 136, rt_sigprocmask 14 135, rt_sigreturn 15 139,
  rt_sigsuspend 130 133, rt_sigtimedwait 128 137, sched_getaffinity 204 123, sched_getparam 143 121,
  sched_getscheduler 145 120, sched_setaffinity 203 122, sched_yield 24 124, select 23 -, sendfile 40 71,
  sendto 44 206, set_robust_list 273 99, set_tid_address 218 96, setitimer 38 103, setpgid 109 154,
  setpriority 141 140, setrlimit 160 164, setsid 112 157, setsockopt 54 208, shutdown 48 210,
  sigaltstack 131 132, socketpair 53 199, stat 4 -, statfs 137 43, statx 332 291, symlink 88 -,
  symlinkat 266 36, sysinfo 99 179, tgkill 234 131, time 201 -, times 100 153, tkill 200 130,
  truncate 76 45, umask 95 166, uname 63 160, unlink 87 -, unlinkat 263 35, utime 132 -, utimensat 280 88,
  utimes 235 -, vfork 58 -, wait4 61 260, waitid 247 95, write 1 64, writev 20 66
"""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _DENY = 0x7FFF0000, 0x00050000 | errno.ENOSYS


def allowed(machine: str) -> dict[str, int]:
  """Returns name -> number of the calls that are allowed on an architecture."""
  column = ARCHITECTURES[machine][1]
  rows = [row.split() for row in " ".join(_TABLE.split()).split(",")]
  return {name: int(numbers[column]) for name, *numbers in rows if numbers[column] != "-"}


def filter_program(machine: str | None = None) -> bytes:
  """Returns the filter for bubblewrap's --seccomp; another architecture's calls do not exist either."""
  machine = machine or platform.machine()
  numbers = sorted(allowed(machine).values())
  n = len(numbers)
  program = [
    (_LOAD, 0, 0, 4),  # the architecture
    (_EQUAL, 0, n + 1, ARCHITECTURES[machine][0]),  # another one: deny
    (_LOAD, 0, 0, 0),  # the number of the call; one of the x32 ABI is in no list
    *((_EQUAL, n - i, 0, number) for i, number in enumerate(numbers)),  # to the last line
    (_RETURN, 0, 0, _DENY),
    (_RETURN, 0, 0, _ALLOW),
  ]
  return b"".join(struct.pack("HBBI", *instruction) for instruction in program)
