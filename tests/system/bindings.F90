! What test_fortran.py runs: collectives through one of Fortran's three bindings.
! Where EXTENDED, persistent collectives have the names of Open MPI 4.1.
#if BINDING == 8 && defined(EXTENDED)
#define MODULE use mpi_f08; use mpi_f08_ext
#define HANDLE(of) type(of)
#elif BINDING == 8
#define MODULE use mpi_f08
#define HANDLE(of) type(of)
#elif BINDING == 90 && defined(EXTENDED)
#define MODULE use mpi; use mpi_ext
#define HANDLE(of) integer
#elif BINDING == 90
#define MODULE use mpi
#define HANDLE(of) integer
#else
#define MODULE
#define HANDLE(of) integer
#endif
#ifdef EXTENDED
#define MPI_Allreduce_init MPIX_Allreduce_init
#define MPI_Reduce_init MPIX_Reduce_init
#define MPI_Bcast_init MPIX_Bcast_init
#define MPI_Barrier_init MPIX_Barrier_init
#endif
program bindings
  MODULE
  implicit none
#if BINDING == 77
  include 'mpif.h'
#ifdef EXTENDED
  include 'mpif-ext.h'
#endif
#endif
  integer :: rank, n, i, code, mine, sum, expected
  integer, allocatable :: all(:), counts(:), places(:)
  HANDLE(MPI_Request) :: request
  HANDLE(MPI_Comm) :: half

  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, n, code)
  mine = rank + 1
  expected = n * (n + 1) / 2
  all = [(0, i = 1, n)]
  counts = [(1, i = 1, n)]
  places = [(i - 1, i = 1, n)]
  do i = 1, 3
    call MPI_Allreduce(mine, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
    call check('allreduce', sum == expected)
  end do
  sum = mine
  call MPI_Allreduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD, code)
  call check('in place', sum == n)
  call MPI_Iallreduce(mine, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, code)
  call MPI_Wait(request, MPI_STATUS_IGNORE, code)
  call check('iallreduce', sum == expected)
  call MPI_Reduce(mine, sum, 1, MPI_INTEGER, MPI_SUM, n - 1, MPI_COMM_WORLD, code)
  call check('reduce', rank < n - 1 .or. sum == expected)
  sum = rank
  call MPI_Bcast(sum, 1, MPI_INTEGER, n - 1, MPI_COMM_WORLD, code)
  call check('bcast', sum == n - 1)
  sum = rank
  call MPI_Ibcast(sum, 1, MPI_INTEGER, n - 1, MPI_COMM_WORLD, request, code)
  call MPI_Wait(request, MPI_STATUS_IGNORE, code)
  call check('ibcast', sum == n - 1)
  call MPI_Ireduce(mine, sum, 1, MPI_INTEGER, MPI_SUM, 1, MPI_COMM_WORLD, request, code)
  call MPI_Wait(request, MPI_STATUS_IGNORE, code)
  call check('ireduce', rank /= 1 .or. sum == expected)
  call MPI_Ibarrier(MPI_COMM_WORLD, request, code)
  call MPI_Wait(request, MPI_STATUS_IGNORE, code)
  call MPI_Allreduce_init(mine, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, &
                          MPI_INFO_NULL, request, code)
  call start_and_free()
  call check('allreduce_init', sum == expected)
  call MPI_Reduce_init(mine, sum, 1, MPI_INTEGER, MPI_MAX, 1, MPI_COMM_WORLD, &
                       MPI_INFO_NULL, request, code)
  call start_and_free()
  call check('reduce_init', rank /= 1 .or. sum == n)
  sum = rank
  call MPI_Bcast_init(sum, 1, MPI_INTEGER, n - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &
                      request, code)
  call start_and_free()
  call check('bcast_init', sum == n - 1)
  call MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, request, code)
  call start_and_free()
  sum = mine
  if (rank == n - 1) then
    call MPI_Reduce(MPI_IN_PLACE, sum, 1, MPI_INTEGER, MPI_SUM, n - 1, &
                    MPI_COMM_WORLD, code)
  else
    call MPI_Reduce(sum, all, 1, MPI_INTEGER, MPI_SUM, n - 1, MPI_COMM_WORLD, code)
  end if
  call check('reduce in place', rank < n - 1 .or. sum == expected)
  call MPI_Allgather(mine, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, code)
  call check('allgather', all_equal(all, places + 1))
  all = 0
  all(rank + 1) = mine
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_INTEGER, all, 1, MPI_INTEGER, &
                     MPI_COMM_WORLD, code)
  call check('allgather in place', all_equal(all, places + 1))
  all = 0
  call MPI_Allgatherv(mine, 1, MPI_INTEGER, all, counts, places, MPI_INTEGER, &
                      MPI_COMM_WORLD, code)
  call check('allgatherv', all_equal(all, places + 1))
  call MPI_Reduce_scatter_block(all, sum, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
  call check('reduce_scatter_block', sum == n * mine)
  call MPI_Reduce_scatter_block(MPI_IN_PLACE, all, 1, MPI_INTEGER, MPI_MAX, &
                                MPI_COMM_WORLD, code)
  call check('reduce_scatter_block in place', all(1) == mine)
  call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, code)
  call MPI_Allgather(mine, 1, MPI_INTEGER, all, 1, MPI_DATATYPE_NULL, &
                     MPI_COMM_WORLD, code)
  call check('allgather of a null datatype', code /= MPI_SUCCESS)
  counts = mine
  call MPI_Alltoall(counts, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, code)
  call check('alltoall', all_equal(all, places + 1))
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half, code)
  call MPI_Barrier(half, code)
  call MPI_Comm_free(half, code)
  call MPI_Finalize(code)
contains
  subroutine start_and_free()
    integer :: time
    do time = 1, 2
      call MPI_Start(request, code)
      call MPI_Wait(request, MPI_STATUS_IGNORE, code)
    end do
    call MPI_Request_free(request, code)
  end subroutine

  logical function all_equal(a, b)
    integer, intent(in) :: a(:), b(:)
    all_equal = .not. any(a /= b)
  end function

  subroutine check(what, good)
    character(*), intent(in) :: what
    logical, intent(in) :: good
    if (.not. good) print '(a, a, i0)', what, ' is wrong on rank ', rank
  end subroutine
end program
